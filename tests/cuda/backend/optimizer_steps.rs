//! Steps of every optimizer on the GPU compared with the reference.

use super::*;

#[test]
fn optimizer_steps_are_the_references() {
    let _alone = alone();
    let cuda = cuda(Precision::F32);
    let n = 9_000;
    let groups = [
        ParamGroup { range: 0..5_000, weight_decay: 0.01, rate: rates::PLAIN },
        ParamGroup { range: 5_000..8_999, weight_decay: 0.0, rate: rates::FIRST },
    ];
    let factors = [0.5, 0.0, 1.0, 0.3];
    let own_factors = upload(&cuda, &factors);
    for rule in rules() {
        let update = Update { rule, lr: 0.05 };
        let g = noise(n, 2, 1.0);
        let mut host = [HostBuf(noise(n, 1, 1.0)), HostBuf(vec![0.0; n]), HostBuf(vec![0.0; n]), HostBuf(vec![0.0; n])];
        let mut own: Vec<CudaBuf> = host.iter().map(|b| upload(&cuda, &b.0)).collect();
        let device_g = upload(&cuda, &g);
        for _ in 0..3 {
            let [w, slots @ ..] = &mut host;
            let mut slots: Vec<&mut HostBuf> = slots.iter_mut().take(rule.slots()).collect();
            let (factors, g) = (HostBuf(factors.to_vec()), HostBuf(g.clone()));
            Reference.update(&update, &groups, &factors, w, &g, &mut slots).unwrap();
            let [w, slots @ ..] = &mut own[..] else { unreachable!() };
            let mut slots: Vec<&mut CudaBuf> = slots.iter_mut().take(rule.slots()).collect();
            cuda.begin_update(&update, 0.0).unwrap();
            cuda.update(&update, &groups, &own_factors, w, &device_g, &mut slots).unwrap();
        }
        for (i, (got, want)) in own.iter().zip(&host).enumerate() {
            assert_close(&format!("{rule:?}, buffer {i}"), &values(got), &want.0, 2e-6 * magnitude(&want.0).max(1.0));
        }
        // an element outside the groups does not change
        assert_eq!(values(&own[0])[8_999], noise(n, 1, 1.0)[8_999]);
    }
}

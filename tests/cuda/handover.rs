//! Buffers that pass from one queue of the GPU to another. Run these tests first on a real GPU: everything that uses
//! several ranks depends on them.

use backend::cuda::{Cuda, CudaBuf, Precision};
use backend::{Buffer, DeviceMemory, Queue};

use crate::backend::{upload, values};
use support::emulator;
use support::gpu::{alone_with, assert_recorded};

/// Returns the number of elements of a buffer, and number of passes over it. On a real GPU the passes take some milliseconds, so that a
/// copy that does not wait reads old values. The emulated GPU runs nothing until something waits for it.
fn size() -> (usize, usize) {
    if emulator::real_gpu() { (1 << 24, 60) } else { (1 << 10, 5) }
}

fn filled(cuda: &Cuda, n: usize, value: f32) -> CudaBuf {
    upload(cuda, &vec![value; n])
}

#[track_caller]
fn assert_all(what: &str, values: &[f32], want: f32) {
    let wrong = values.iter().position(|v| *v != want);
    assert_eq!(wrong.map(|i| (i, values[i])), None, "{what}: expected {want} in every element");
}

/// If a pass marks a buffer, each replay of the pass records an event. A queue that waits for the event gets the values
/// of this replay, not of the previous one, and does not wait for later work.
#[test]
fn a_mark_within_a_replayed_pass_holds_other_queues_back() {
    let (_alone, cuda) = alone_with(Precision::F32);
    let (n, passes) = size();
    let (one, mut sum, mut later) = (filled(&cuda, n, 1.0), filled(&cuda, n, 0.0), filled(&cuda, n, 1.0));
    let later_passes = || emulator::calls("ran kernel arena_scale");
    let start = later_passes();
    for round in 1..=8 {
        cuda.repeat("the test's pass", 1, &mut || {
            (0..passes).try_for_each(|_| cuda.add(&mut sum, &one))?;
            cuda.mark(&mut sum)?;
            (0..passes).try_for_each(|_| DeviceMemory::scale(&cuda, &mut later, 1.0))
        })
        .unwrap();
        let want = (round * passes) as f32;
        // read the buffer in another thread, as the thread that owns MPI does
        let mut handed = std::mem::take(&mut sum);
        sum = std::thread::scope(|scope| {
            let took = scope.spawn(move || {
                if round % 2 == 0 {
                    handed.fetch().unwrap();
                    assert_all(&format!("round {round}, fetched"), handed.staged().unwrap(), want);
                } else {
                    assert_all(&format!("round {round}, read"), &values(&handed), want);
                }
                handed
            });
            took.join().unwrap()
        });
        let ran = later_passes().zip(start).map_or((round - 1) * passes, |(now, start)| (now - start) as usize);
        assert_eq!(ran, (round - 1) * passes, "round {round}: it waited for later work");
    }
    assert_recorded(&cuda);
    assert!(emulator::calls("cuGraphLaunch").is_none_or(|launches| launches > 0));
}

#[test]
fn a_replayed_pass_reads_what_the_host_has_returned() {
    let (_alone, cuda) = alone_with(Precision::F32);
    let (n, _) = size();
    let (mut sum, mut total) = (filled(&cuda, n, 0.0), filled(&cuda, n, 0.0));
    let mut want = 0.0;
    for round in 1..=6u16 {
        cuda.repeat("the test's pass", 2, &mut || {
            DeviceMemory::scale(&cuda, &mut sum, 0.0)?;
            cuda.mark(&mut sum)
        })
        .unwrap();
        sum.fetch().unwrap();
        assert_all("what the pass has left", sum.staged().unwrap(), 0.0);
        sum.staged().unwrap().fill(f32::from(round));
        sum.unstage().unwrap();
        cuda.repeat("the test's next pass", 3, &mut || cuda.add(&mut total, &sum)).unwrap();
        want += f32::from(round);
    }
    assert_all("the sum", &values(&total), want);
    assert_recorded(&cuda);
}

/// If the enqueuing thread reads or writes a buffer, this happens after all work enqueued so far, even if the buffer
/// was marked earlier. Gradients, for example, are marked, summed and then scaled.
#[test]
fn reads_and_writes_of_the_enqueuing_thread_wait_for_work_after_the_mark() {
    let (_alone, cuda) = alone_with(Precision::F32);
    let (n, passes) = size();
    let (one, mut sum) = (filled(&cuda, n, 1.0), filled(&cuda, n, 0.0));
    cuda.mark(&mut sum).unwrap();
    for round in 1..=3 {
        (0..passes).for_each(|_| cuda.add(&mut sum, &one).unwrap());
        assert_all(&format!("round {round}"), &values(&sum), (round * passes) as f32);
    }
    (0..passes).for_each(|_| cuda.add(&mut sum, &one).unwrap());
    sum.write(0, &vec![7.0; n]).unwrap();
    assert_all("what was written", &values(&sum), 7.0);
}

/// The sum of a bucket returns to the GPU while later buckets are still being computed. It does not wait for the copies
/// of these buckets to the host.
#[test]
fn a_copy_to_the_gpu_does_not_wait_for_a_copy_to_the_host() {
    let (_alone, cuda) = alone_with(Precision::F32);
    let (n, passes) = size();
    let (one, mut first, mut second) = (filled(&cuda, n, 1.0), filled(&cuda, n, 0.0), filled(&cuda, n, 0.0));
    cuda.add(&mut first, &one).unwrap();
    cuda.mark(&mut first).unwrap();
    first.fetch().unwrap();
    assert_all("the first bucket", first.staged().unwrap(), 1.0);
    (0..passes).for_each(|_| cuda.add(&mut second, &one).unwrap());
    cuda.mark(&mut second).unwrap();
    second.fetch().unwrap();
    let before = emulator::calls("ran kernel arena_add");
    first.staged().unwrap().fill(7.0);
    first.unstage().unwrap();
    // waits until the copy to the GPU has finished
    first.staged().unwrap();
    assert_eq!(emulator::calls("ran kernel arena_add"), before, "the return of the first bucket waited for the second");
    assert_all("the second bucket", second.staged().unwrap(), passes as f32);
    assert_all("the first bucket's sum", &values(&first), 7.0);
}

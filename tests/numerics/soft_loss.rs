//! Losses with soft targets on every backend, compared with PyTorch, torchvision and timm (`golden/soft_loss.json`),
//! with the reference on many shapes, and with differences of the reference's losses.

use backend::reference::Reference;
use backend::{
    Backend, CrossEntropy, Distance, Error, LossForm, LossSums, Objective, SoftLoss, SoftTargets, Teaching, TensorDesc,
};
use net::Shape;
use serde::Deserialize;

use crate::ops::take_loss;
use support::numerics::{Example, Formula, assert_close, golden, magnitude, noise, on_every_backend};

#[derive(Deserialize)]
struct File {
    fill_example: Example,
    cases: Vec<Golden>,
}

#[derive(Deserialize)]
struct Golden {
    name: String,
    form: String,
    gamma: f32,
    #[serde(default)]
    delta: f32,
    alpha: Option<f32>,
    mean: bool,
    share: f32,
    temperature: f32,
    x: Formula,
    teacher: Option<Formula>,
    targets: Vec<f32>,
    weights: Vec<f32>,
    divisor: f64,
    y: Vec<f64>,
    dx: Vec<f64>,
}

#[derive(Clone, Debug)]
struct Case {
    what: String,
    objective: Objective,
    classes: usize,
    x: Vec<f32>,
    teacher: Option<Vec<f32>>,
    labels: Vec<u32>,
    table: Vec<f32>,
    scale: f32,
}

struct Outcome {
    sums: LossSums,
    dx: Vec<f32>,
}

impl Case {
    fn desc(&self) -> TensorDesc {
        TensorDesc::plain(self.labels.len(), Shape::vector(self.classes))
    }

    fn ask(&self) -> SoftLoss<'_> {
        let targets = SoftTargets { labels: &self.labels, table: &self.table };
        SoftLoss { targets, objective: self.objective, scale: self.scale, weight: 1.0 }
    }

    /// Runs the loss with the gradient and once without.
    fn run<B: Backend>(&self, backend: &B) -> Result<Outcome, Error> {
        let upload = |values: &Vec<f32>| {
            let mut buffer = backend.alloc(values.len())?;
            backend.upload(values, &mut buffer).map(|()| buffer)
        };
        let (x, teacher) = (upload(&self.x)?, self.teacher.as_ref().map(upload).transpose()?);
        let mut dx = backend.alloc(self.x.len())?;
        let (desc, ask) = (self.desc(), self.ask());
        let sums = |sums: Option<LossSums>| {
            sums.map_or_else(|| backend.queue().expect("a queue").loss_sums(), Ok::<LossSums, Error>)
        };
        let with = sums(backend.soft_loss(&desc, ask, &x, teacher.as_ref().map(|t| (&desc, t)), Some(&mut dx))?)?;
        let dx = backend.download(&desc, &dx)?;
        let without = sums(backend.soft_loss(&desc, ask, &x, teacher.as_ref().map(|t| (&desc, t)), None)?)?;
        let neither = without.loss.is_nan() && with.loss.is_nan();
        assert!(neither || without == with, "{}: {without:?} without the gradient, {with:?} with it", self.what);
        Ok(Outcome { sums: with, dx })
    }
}

impl Golden {
    fn case(&self) -> Case {
        let (rows, classes) = (self.x.shape[0], self.x.shape[1]);
        let form = match self.form.as_str() {
            "softmax" => LossForm::Softmax,
            "mse" => LossForm::Distance(Distance::Squared),
            "l1" => LossForm::Distance(Distance::Absolute),
            "huber" => LossForm::Distance(Distance::Huber { delta: self.delta }),
            _ => LossForm::Sigmoid { alpha: self.alpha, mean: self.mean },
        };
        let teaching = Teaching { share: self.share, temperature: self.temperature };
        let objective = Objective { form, gamma: self.gamma, teacher: self.teacher.as_ref().map(|_| teaching) };
        let rows_of = self.targets.chunks(classes).zip(&self.weights);
        Case {
            what: self.name.clone(),
            objective,
            classes,
            x: self.x.fill(),
            teacher: self.teacher.as_ref().map(Formula::fill),
            labels: vec![0; rows],
            table: rows_of.flat_map(|(row, weight)| [&[*weight], row].concat()).collect(),
            scale: (1.0 / self.divisor) as f32,
        }
    }
}

fn check_golden<B: Backend>(backend: &B, name: &str, _: &[usize], cases: &[Golden]) {
    for golden in cases {
        let what = format!("{} on {name}", golden.name);
        let Outcome { sums, dx } = golden.case().run(backend).unwrap_or_else(|e| panic!("{what}: {e}"));
        let (got, want) = (sums.loss / golden.divisor, golden.y[0]);
        assert!((got - want).abs() <= 2e-6 * want.abs().max(1.0), "{what}: expected {want}, got {got}");
        assert_close(&what, &dx, &golden.dx, 3e-7 * (1.0 + magnitude(&golden.dx)));
    }
}

#[test]
fn the_numbers_of_pytorch_torchvision_and_timm() {
    let file: File = golden("soft_loss.json");
    file.fill_example.check(Formula::fill_n);
    assert!(file.cases.len() >= 23, "only {} cases", file.cases.len());
    on_every_backend!(check_golden(&file.cases));
}

/// Returns every form with every option, for shapes from one class to more classes than a warp has lanes.
fn many() -> Vec<Case> {
    let sigmoid = |alpha, mean| LossForm::Sigmoid { alpha, mean };
    let distances = [Distance::Squared, Distance::Absolute, Distance::Huber { delta: 1.5 }].map(LossForm::Distance);
    let forms = [LossForm::Softmax, sigmoid(None, false), sigmoid(Some(0.3), true)];
    let mut cases = Vec::new();
    for (k, (rows, classes)) in (100..).step_by(10).zip([(1, 1), (3, 2), (5, 31), (33, 32), (2, 70)]) {
        for (form, gamma) in forms.into_iter().flat_map(|form| [0.0, 0.7, 1.0, 3.0].map(|gamma| (form, gamma))) {
            for teacher in [None, Some(Teaching { share: 0.4, temperature: 2.5 })] {
                let targets = noise(rows * classes, k, 0.5).into_iter().map(|v| v + 0.5);
                let weights = noise(rows, k + 1, 1.0).into_iter().map(|v| v + 1.5);
                let mut targets = targets.collect::<Vec<_>>().into_iter();
                let table =
                    weights.flat_map(|w| [vec![w], targets.by_ref().take(classes).collect()].concat()).collect();
                cases.push(Case {
                    what: format!("{rows} x {classes}, {form:?}, gamma {gamma}, {teacher:?}"),
                    objective: Objective { form, gamma, teacher },
                    classes,
                    x: noise(rows * classes, k + 2, 4.0),
                    teacher: teacher.map(|_| noise(rows * classes, k + 3, 3.0)),
                    labels: (0..rows).map(|row| (row * 7 % classes) as u32).collect(),
                    table,
                    scale: 0.37,
                });
            }
        }
    }
    // distances have neither an exponent nor a teacher, and no row is a hit
    for form in distances {
        let plain = cases.iter().filter(|case| case.objective == Objective::CROSS_ENTROPY);
        let made: Vec<Case> = plain
            .map(|case| Case {
                what: format!("{}, {form:?}", case.what),
                objective: Objective { form, ..Objective::CROSS_ENTROPY },
                ..case.clone()
            })
            .collect();
        assert_eq!(made.len(), 5);
        cases.extend(made);
    }
    // classes with targets above one half count as hits; some rows have such classes, some have none
    let sigmoid =
        |case: &&Case| matches!(case.objective.form, LossForm::Sigmoid { .. }) && case.objective.teacher.is_none();
    let any = cases.iter().filter(sigmoid).map(|case| {
        let (rows, mut table) = (case.labels.len(), case.table.clone());
        table[1..=case.classes].fill(0.5);
        let what = format!("{}, any class", case.what);
        Case { what, labels: vec![SoftTargets::ANY; rows], table, ..case.clone() }
    });
    let any: Vec<Case> = any.collect();
    cases.extend(any);
    cases
}

/// Checks which rows count as hits, with expected results worked out by hand.
fn check_any_class<B: Backend>(backend: &B, name: &str, _: &[usize]) {
    let scores = [3.0, 1.0, 3.0, 0.0, -1.0, 2.0, 0.5];
    let rows: [(&[usize], [u64; 2]); 8] = [
        (&[0], [1, 1]),
        (&[2], [0, 1]),
        (&[1, 2, 4], [0, 1]),
        (&[0, 4], [1, 1]),
        (&[3], [0, 0]),
        (&[4], [0, 0]),
        (&[6], [0, 1]),
        (&[], [0, 0]),
    ];
    for (own, hits) in rows {
        let target = |c: usize| if own.contains(&c) { 0.75 } else { 0.5 };
        let table = std::iter::once(1.0).chain((0..scores.len()).map(target)).collect();
        let objective = Objective { form: LossForm::Sigmoid { alpha: None, mean: true }, ..Objective::CROSS_ENTROPY };
        let (x, labels) = (scores.to_vec(), vec![SoftTargets::ANY]);
        let what = format!("{own:?} on {name}");
        let case = Case { what, objective, classes: scores.len(), x, teacher: None, labels, table, scale: 1.0 };
        let sums = case.run(backend).unwrap().sums;
        assert_eq!([sums.top1, sums.top5], hits, "{}", case.what);
        // a NaN score is never a hit
        let mut lost = case.clone();
        own.iter().for_each(|c| lost.x[*c] = f32::NAN);
        let sums = lost.run(backend).unwrap().sums;
        assert_eq!([sums.top1, sums.top5], [0, 0], "{}, lost", case.what);
    }
}

/// Regression losses never count a row as a hit, whatever its labels are.
fn check_numbers<B: Backend>(backend: &B, name: &str, _: &[usize]) {
    for case in many().into_iter().filter(|case| matches!(case.objective.form, LossForm::Distance(_))) {
        for labels in [case.labels.clone(), vec![SoftTargets::ANY; case.labels.len()]] {
            let what = case.what.clone();
            let LossSums { top1, top5, count, .. } = Case { labels, ..case.clone() }.run(backend).unwrap().sums;
            assert_eq!((top1, top5, count), (0, 0, case.labels.len() as u64), "{what} on {name}");
        }
    }
    // at the target itself, the absolute distance has the slope 0, as in PyTorch
    let objective = Objective { form: LossForm::Distance(Distance::Absolute), ..Objective::CROSS_ENTROPY };
    let (x, table, labels) = (vec![0.5, -1.0, 2.0], vec![1.0, 0.5, 0.0, 1.5], vec![SoftTargets::ANY]);
    let what = "on the target".to_string();
    let case = Case { what, objective, classes: 3, x, teacher: None, labels, table, scale: 3.0 };
    assert_eq!(case.run(backend).unwrap().dx, [0.0, -1.0, 1.0], "{name}");
}

#[test]
fn numbers_are_no_hits() {
    on_every_backend!(check_numbers());
}

#[test]
fn any_target_class_counts_as_a_hit() {
    on_every_backend!(check_any_class());
}

fn check_against_loops<B: Backend>(backend: &B, name: &str, _: &[usize], cases: &[Case]) {
    for case in cases {
        let what = format!("{} on {name}", case.what);
        let want = case.run(&Reference).unwrap();
        let got = case.run(backend).unwrap_or_else(|e| panic!("{what}: {e}"));
        let off = (got.sums.loss - want.sums.loss).abs();
        assert!(
            off <= 4e-6 * (1.0 + want.sums.loss.abs()),
            "{what}: loss {}, expected {}",
            got.sums.loss,
            want.sums.loss
        );
        assert_eq!(LossSums { loss: 0.0, ..got.sums }, LossSums { loss: 0.0, ..want.sums }, "{what}");
        let expected: Vec<f64> = want.dx.iter().map(|v| f64::from(*v)).collect();
        assert_close(&what, &got.dx, &expected, 4e-6 * (1.0 + magnitude(&expected)));
    }
}

#[test]
fn every_backend_computes_what_the_plain_loops_do() {
    let cases = many();
    on_every_backend!(check_against_loops(&cases));
}

#[test]
fn gradients_are_the_slopes_of_the_losses() {
    const STEP: f32 = 1.0 / 512.0;
    for case in many().into_iter().filter(|case| case.x.len() < 200) {
        let dx = case.run(&Reference).unwrap().dx;
        let largest = dx.iter().fold(0.0f32, |most, d| most.max(d.abs()));
        for (i, &got) in dx.iter().enumerate() {
            let moved = |step: f32| {
                let mut other = case.clone();
                other.x[i] += step;
                // returns the changed value too, because rounding to f32 changes the step
                (other.run(&Reference).unwrap().sums.loss, f64::from(other.x[i]))
            };
            let ((up, above), (down, below)) = (moved(STEP), moved(-STEP));
            let slope = (up - down) / (above - below) * f64::from(case.scale);
            let off = (slope - f64::from(got)).abs();
            assert!(off <= 1e-4 * f64::from(1.0 + largest), "{}: score {i}: gradient {got}, slope {slope}", case.what);
        }
    }
}

fn check_one_class_a_row<B: Backend>(backend: &B, name: &str, _: &[usize]) {
    let case = Case { objective: Objective::CROSS_ENTROPY, ..many().remove(24) };
    let (rows, classes) = (case.labels.len(), case.classes);
    let one = |row: usize, c: usize| f32::from(c == 0 || c == 1 + case.labels[row] as usize);
    let table = (0..rows).flat_map(|row| (0..=classes).map(move |c| (row, c))).map(|(row, c)| one(row, c)).collect();
    let got = Case { table, ..case.clone() }.run(backend).unwrap();
    let mut x = backend.alloc(case.x.len()).unwrap();
    let mut dx = backend.alloc(case.x.len()).unwrap();
    backend.upload(&case.x, &mut x).unwrap();
    let ask = CrossEntropy { labels: &case.labels, smoothing: 0.0, scale: case.scale, weight: 1.0 };
    let sums = take_loss(backend, &case.desc(), ask, &x, Some(&mut dx)).unwrap();
    assert!(
        (got.sums.loss - sums.loss).abs() <= 1e-6 * sums.loss,
        "{name}: loss {}, expected {}",
        got.sums.loss,
        sums.loss
    );
    assert_eq!((got.sums.top1, got.sums.top5, got.sums.count), (sums.top1, sums.top5, sums.count), "{name}");
    let want: Vec<f64> = backend.download(&case.desc(), &dx).unwrap().into_iter().map(f64::from).collect();
    assert_close(name, &got.dx, &want, 1e-6);
}

#[test]
fn one_class_per_row_equals_the_cross_entropy_of_labels() {
    on_every_backend!(check_one_class_a_row());
}

fn check_bad_input<B: Backend>(backend: &B, name: &str, _: &[usize]) {
    let case = many().remove(24);
    let refused = |case: Case| case.run(backend).err().unwrap_or_else(|| panic!("{name}: accepted")).to_string();
    let short = refused(Case { table: case.table[1..].to_vec(), ..case.clone() });
    assert!(short.contains(&format!("{} targets and weights", case.table.len())), "{name}: {short}");
    let wrong = refused(Case { labels: vec![case.classes as u32; case.labels.len()], ..case.clone() });
    assert!(wrong.contains(&format!("labels below {}", case.classes)), "{name}: {wrong}");
    // a NaN must reach the loss
    let mut broken = case.clone();
    broken.x[0] = f32::NAN;
    assert!(broken.run(backend).unwrap().sums.loss.is_nan(), "{name} hides a NaN");
}

#[test]
fn tables_of_another_length_and_labels_out_of_range_are_refused() {
    on_every_backend!(check_bad_input());
}

//! Reductions with known results at the start of a run, using the same calls as training.
//!
//! MPI libraries have returned wrong sums for some sizes, transports or kinds of memory. This test finds that before
//! training starts.

use std::fmt::Display;

use base::bf16::{narrow_all, widen_all};

use super::error::Error;
use super::world::World;

/// The lengths to test. MPI libraries switch algorithms with the size of the message.
const LENGTHS: [usize; 3] = [1, 1_021, 70_001];

/// Values are in `0..CYCLE`, so that the sum is exact in f32 for up to 2.7 million ranks.
const CYCLE: usize = 7;

/// Number of ranks that contribute values to the sums in bf16. All further ranks contribute 0. The sums are then at
/// most 256, and bf16 represents integers up to 256 exactly.
const FEW: usize = 256 / (CYCLE - 1);

/// Reduces rank-dependent values over all ranks and compares the results with the known answers. Collective.
///
/// # Errors
///
/// Returns [`Error::KnownAnswer`] on each rank that received a wrong value, or the error of the MPI call.
pub fn check(world: &World) -> Result<(), Error> {
    for length in LENGTHS {
        probe(world, "sum of f32", length, ALL, |v| v as f32, World::sum_f32)?;
        probe(world, "sum of f64", length, ALL, |v| v as f64, World::sum_f64)?;
        probe(world, "sum of i32", length, ALL, |v| v as i32, World::sum_i32)?;
        probe(world, "sum of u64", length, ALL, |v| v as u64, World::sum_u64)?;
        probe(world, "sum of i64", length, ALL, |v| v as i64, World::sum_i64)?;
        probe(world, "sum of bf16", length, FIRST, |v| v as f32, sum_bf16)?;
        probe(world, "maximum of u32", length, MOST, |v| v as u32, World::max_u32)?;
        probe(world, "maximum of f64", length, MOST, |v| v as f64, World::max_f64)?;
    }
    Ok(())
}

/// Returns the value that `rank` contributes at `index`.
pub fn value(rank: usize, index: usize) -> usize {
    (rank + index) % CYCLE
}

/// Returns the sum of [`value`] at `index` over all `ranks`.
pub fn sum(ranks: usize, index: usize) -> usize {
    let rest: usize = (0..ranks % CYCLE).map(|rank| value(rank, index)).sum();
    ranks / CYCLE * (CYCLE * (CYCLE - 1) / 2) + rest
}

/// Returns the largest [`value`] at `index` over all `ranks`.
fn max(ranks: usize, index: usize) -> usize {
    (0..ranks.min(CYCLE)).map(|rank| value(rank, index)).max().unwrap_or(0)
}

/// The values for a reduction and its result. `value(rank, index)` is the value that a rank contributes, `answer(ranks,
/// index)` is the expected result for this number of ranks.
#[derive(Clone, Copy)]
struct Question {
    value: fn(usize, usize) -> usize,
    answer: fn(usize, usize) -> usize,
}

const ALL: Question = Question { value, answer: sum };
const FIRST: Question = Question {
    value: |rank, index| if rank < FEW { value(rank, index) } else { 0 },
    answer: |ranks, index| sum(ranks.min(FEW), index),
};
const MOST: Question = Question { value, answer: max };

fn sum_bf16(world: &World, values: &mut [f32]) -> Result<(), Error> {
    let mut numbers = vec![0; values.len()];
    narrow_all(values, &mut numbers);
    world.sum_bf16(&mut numbers)?;
    widen_all(&numbers, values);
    Ok(())
}

fn probe<T: PartialEq + Display>(
    world: &World,
    operation: &'static str,
    length: usize,
    question: Question,
    convert: fn(usize) -> T,
    reduce: fn(&World, &mut [T]) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut values: Vec<T> = (0..length).map(|i| convert((question.value)(world.rank(), i))).collect();
    reduce(world, &mut values)?;
    compare(operation, world.size(), &values, |index| convert((question.answer)(world.size(), index)))
}

fn compare<T: PartialEq + Display>(
    operation: &'static str,
    ranks: usize,
    values: &[T],
    answer: impl Fn(usize) -> T,
) -> Result<(), Error> {
    match values.iter().enumerate().find(|(index, got)| **got != answer(*index)) {
        None => Ok(()),
        Some((index, got)) => Err(Error::KnownAnswer {
            operation,
            ranks,
            index,
            length: values.len(),
            expected: answer(index).to_string(),
            got: got.to_string(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_answers_equal_plain_sums_and_maxima() {
        for ranks in (1..50).chain([70, 700]) {
            for index in 0..20 {
                let values = || (0..ranks).map(|rank| value(rank, index));
                assert_eq!(sum(ranks, index), values().sum::<usize>());
                assert_eq!(Some(max(ranks, index)), values().max());
                let few = (0..ranks).map(|rank| (FIRST.value)(rank, index)).sum::<usize>();
                assert!((FIRST.answer)(ranks, index) == few && few <= 256, "{ranks} ranks, element {index}");
            }
        }
    }

    #[test]
    fn a_wrong_sum_is_reported_with_index_and_both_values() {
        let mut values: Vec<f32> = (0..9).map(|i| sum(3, i) as f32).collect();
        let answer = |i| sum(3, i) as f32;
        assert_eq!(compare("sum of f32", 3, &values, answer), Ok(()));
        values[5] += 1.0;
        // At index 5, ranks 0, 1 and 2 hold 5, 6 and 0.
        let wrong = Error::KnownAnswer {
            operation: "sum of f32",
            ranks: 3,
            index: 5,
            length: 9,
            expected: "11".into(),
            got: "12".into(),
        };
        assert_eq!(compare("sum of f32", 3, &values, answer), Err(wrong));
    }

    #[test]
    fn a_nan_is_a_wrong_sum() {
        assert!(compare("sum of f32", 2, &[f32::NAN], |_| 0.0).is_err());
    }
}

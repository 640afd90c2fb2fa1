//! Tests of communication on real ranks. Each test starts this program under `mpirun` with a case that its ranks run.

use std::ops::Range;
use std::time::Duration;

use comm::codec::{Bucket, CATALOGUE, Key, Settings, Share, Tensor};
use comm::{Comm, Error, Verdict, World};
use support::program::{self, ProgramOutput, longer};

/// Time within which all ranks must have ended after a failure.
const IN_TIME: Duration = Duration::from_secs(20);

const CASE: &str = "TRIREME_TEST_CASE";

/// The code that the ranks run. The tests below start it; it does nothing on its own.
#[test]
#[ignore = "the ranks' side of the other tests"]
fn worker() {
    let Ok(case) = std::env::var(CASE) else { return };
    comm::install_panic_hook();
    let comm = Comm::launch();
    match case.as_str() {
        "early" => comm::die(7, "too early"),
        "twice" => assert_eq!(Comm::launch().world(), Err(Error::Twice)),
        _ => {}
    }
    let world = match comm.world() {
        Ok(world) => world.clone(),
        Err(error) => comm::die(1, &error.to_string()),
    };
    match case.as_str() {
        "collectives" => collectives(&comm),
        "codecs" => println!("sums of codecs: {:x?}", comm.run("sums of codecs", codecs).unwrap()),
        "world" => println!("{world:?} launcher {:?} verdict {:?}", comm::launcher(), comm::check_launch(world.size)),
        "errors" => errors(&comm),
        "values" => values(&comm, world.rank).unwrap(),
        "progress" => progress(&comm, world.rank),
        "panic" => wait_for_the_end_after(&comm, world.rank, |_| panic!("oar broken")),
        "order" => order(&comm),
        "queued panic" if world.rank == 1 => {
            let waited = comm.start("the last stroke", |_| -> Result<(), Error> { panic!("oar broken") }).wait();
            unreachable!("nobody ended this rank: {waited:?}");
        }
        "die" => wait_for_the_end_after(&comm, world.rank, |_| comm::die(42, "shard 3 is cut short")),
        "thread" if world.rank == 1 => {
            let thread = std::thread::Builder::new().name("loader-0".into());
            let _ = thread.spawn(|| panic!("record 17 is bad")).map(std::thread::JoinHandle::join);
        }
        "many" => many_die(),
        "killed" if world.rank == 1 => std::process::abort(),
        "thread" | "killed" | "queued panic" => wait_for_the_end_after(&comm, usize::MAX, |_| Ok(())),
        _ => {}
    }
    if let Err(error) = comm.finish() {
        comm::die(1, &error.to_string());
    }
    match case.as_str() {
        "late" => comm::die(9, "after the end of MPI"),
        _ => assert_eq!(comm.run("late sum", World::barrier), Err(Error::Finished { what: "late sum" })),
    }
}

fn collectives(comm: &Comm) {
    // A limit of 7 splits all longer buffers, with a shorter last part.
    for limit in [usize::MAX, 7] {
        let done = comm.run("all collectives", move |world| {
            world.set_limit(limit);
            let (rank, size) = (world.rank(), world.size());
            sums(world)?;
            let sent: Vec<u8> = (0..=200).collect();
            let mut bytes = if rank == 0 { sent.clone() } else { vec![rank as u8; rank] };
            world.broadcast(&mut bytes)?;
            assert_eq!(bytes, sent);
            let all = world.gather(&vec![rank as u8 + 1; 10 * rank])?;
            let expected: Vec<Vec<u8>> = (0..size).map(|r| vec![r as u8 + 1; 10 * r]).collect();
            assert_eq!(all, (rank == 0).then_some(expected));
            assert_eq!(world.gather(&[])?, (rank == 0).then(|| vec![vec![]; size]));
            world.barrier()
        });
        if let Err(error) = done {
            comm::die(1, &error.to_string());
        }
    }
    println!("all collectives right");
}

fn sums(world: &World) -> Result<(), Error> {
    let (rank, size) = (world.rank(), world.size());
    let ranks_sum = size * (size + 1) / 2;
    for length in [0, 1, 7, 8, 1_000] {
        let mut singles: Vec<f32> = (0..length).map(|i| ((rank + 1) * i) as f32).collect();
        world.sum_f32(&mut singles)?;
        assert!(singles.iter().enumerate().all(|(i, &v)| v == (ranks_sum * i) as f32), "{singles:?}");
        let mut doubles: Vec<f64> = (0..length).map(|i| ((rank + 1) * i) as f64 + 0.5).collect();
        world.sum_f64(&mut doubles)?;
        assert!(doubles.iter().enumerate().all(|(i, &v)| v == (ranks_sum * i) as f64 + 0.5 * size as f64));
        let mut whole: Vec<i64> = (0..length as i64).map(|i| -(1 << 40) * i * (rank as i64 + 1)).collect();
        world.sum_i64(&mut whole)?;
        assert!(whole.iter().enumerate().all(|(i, &v)| v == -(1 << 40) * i as i64 * ranks_sum as i64));
        let mut short: Vec<i32> = (0..length as i32).map(|i| -1_000 * i * (rank as i32 + 1)).collect();
        world.sum_i32(&mut short)?;
        assert!(short.iter().enumerate().all(|(i, &v)| v == -1_000 * (i * ranks_sum) as i32));
        let mut lanes: Vec<u64> = (0..length as u64).map(|i| (1 << 60) + i * (rank as u64 + 1)).collect();
        world.sum_u64(&mut lanes)?;
        assert!(lanes.iter().enumerate().all(|(i, &v)| v == ((size as u64) << 60) + (i * ranks_sum) as u64));
        // Multiples of 1.5, 3 and -8. They and their sums over four ranks are exact in bf16.
        let bf16 = |x: f32| (x.to_bits() >> 16) as u16;
        let mut halves: Vec<u16> = (0..length).map(|i| bf16((rank + 1) as f32 * [1.5, 3.0, -8.0][i % 3])).collect();
        let before = world.traffic();
        world.sum_bf16(&mut halves)?;
        assert_eq!(world.traffic().bytes - before.bytes, 2 * length as u64);
        assert!(halves.iter().enumerate().all(|(i, &v)| v == bf16(ranks_sum as f32 * [1.5, 3.0, -8.0][i % 3])));
        // The largest u32 values would be negative as i32.
        let mut largest: Vec<u32> = (0..length).map(|i| u32::MAX - ((rank + i) % size) as u32).collect();
        world.max_u32(&mut largest)?;
        assert!(largest.iter().all(|&v| v == u32::MAX), "{largest:?}");
        let mut low: Vec<f64> = (0..length).map(|i| -((rank + i) as f64)).collect();
        world.max_f64(&mut low)?;
        assert!(low.iter().enumerate().all(|(i, &v)| v == -(i as f64)), "{low:?}");
    }
    Ok(())
}

const WORKERS: usize = 5;
const GRADIENTS: usize = 3_000;

/// Returns a worker's gradients, numbers in [-1, 1) that are equal in every run. A larger number is different for each
/// worker, and `ternary` clips it.
fn gradients(worker: usize) -> Vec<f32> {
    let mut draws = loaders::Draws::new(20, worker as u64, 0, 1);
    let mut gradients: Vec<f32> = (0..GRADIENTS).map(|_| 2.0 * draws.unit() - 1.0).collect();
    gradients[100] = 40.0 * (worker + 1) as f32;
    gradients
}

fn hash(values: &[f32]) -> u64 {
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    base::fnv::hash(&bytes)
}

/// Divides five workers among the ranks and sums their gradients with each integer codec. Returns two numbers per codec:
/// the sum's hash, and the total when all residuals' hashes are added.
fn codecs(world: &World) -> Result<Vec<[u64; 2]>, Error> {
    let (rank, size) = (world.rank(), world.size());
    let mine = rank * WORKERS / size..(rank + 1) * WORKERS / size;
    let tensor = |parameter, range: Range<usize>, exempt| {
        let name = format!("tensor {parameter}");
        Tensor { name, parameter, elems: range.len(), range, exempt }
    };
    let bucket = Bucket { len: GRADIENTS, tensors: vec![tensor(0, 0..64, true), tensor(1, 64..GRADIENTS, false)] };
    let mut hashes = Vec::new();
    for entry in CATALOGUE.iter().filter(|entry| entry.integer) {
        let settings = Settings { workers: WORKERS, clip: 2.5, error_feedback: entry.biased };
        let mut codec = (entry.make)(&bucket, &settings, mine.clone());
        let mut own: Vec<Vec<f32>> = mine.clone().map(gradients).collect();
        let mut shares: Vec<Share<'_>> =
            mine.clone().zip(&mut own).map(|(worker, gradients)| Share { worker, gradients }).collect();
        let mut scales = Vec::new();
        codec.scales(&bucket, &mut shares, &mut scales);
        world.max_u32(&mut scales)?;
        codec.encode(&bucket, &scales, &mut shares, Key { seed: 20, step: 9 });
        codec.send(world, &mut shares)?;
        let last = shares.last_mut().expect("every rank has a worker");
        codec.decode(&bucket, &scales, last.gradients);
        let of_residual = |worker| codec.residual(worker).map_or(0, |values| hash(values));
        let mut residuals = [mine.clone().map(of_residual).fold(0, u64::wrapping_add)];
        world.sum_u64(&mut residuals)?;
        hashes.push([hash(last.gradients), residuals[0]]);
    }
    Ok(hashes)
}

/// A value of a type that only JSON can transfer.
type Value = (String, Option<usize>, Vec<u64>);

fn value(rank: usize) -> Value {
    (format!("rank \"{rank}\", \u{e9}\n"), (rank > 0).then_some(rank), vec![u64::MAX - rank as u64; rank])
}

fn values(comm: &Comm, rank: usize) -> Result<(), Error> {
    let size = comm.world()?.size;
    let all: Vec<Value> = (0..size).map(value).collect();
    assert_eq!(comm.gather("gathering of values", &value(rank))?, (rank == 0).then(|| all.clone()));
    assert_eq!(comm.gather_all("exchange of values", &value(rank))?, all);
    assert_eq!(comm.broadcast("value of rank 0", (rank == 0).then(|| value(0)).as_ref())?, value(0));
    assert!(comm.all("agreement", true)? && !comm.all("agreement", rank > 0)?);
    let nan = comm.gather("not a number", &f64::NAN);
    assert!(rank > 0 || matches!(nan, Err(Error::Value { what: "not a number", .. })), "{nan:?}");
    println!("all values right");
    Ok(())
}

fn errors(comm: &Comm) {
    // The ranks disagree on the length: rank 1 receives more than its buffer can hold.
    let unequal = comm.run("sum of unequal lengths", |world| {
        let length = if world.rank() == 0 { 64 } else { 8 };
        world.sum_f32(&mut vec![1.0; length])
    });
    if comm.world().is_ok_and(|w| w.rank == 1) {
        let Err(Error::Call { operation: "sum of unequal lengths", call: "MPI_Allreduce", text, .. }) = unequal else {
            panic!("{unequal:?}");
        };
        assert!(text.contains("trunc"), "{text}");
        println!("error of rank 1 right");
    }
    let inside = comm.clone();
    let waited = comm.run("outer", move |_| inside.run("inner", World::barrier));
    assert_eq!(waited, Err(Error::Inside { what: "inner" }));
}

fn progress(comm: &Comm, rank: usize) {
    assert!(!comm.progress().running);
    let before = comm.progress().number;
    for _ in 0..3 {
        comm.run("three barriers", World::barrier).unwrap();
    }
    let (enter, entered) = std::sync::mpsc::channel();
    let (leave, left) = std::sync::mpsc::channel::<()>();
    let pending = comm.start("a long one", move |_| {
        let _ = enter.send(());
        let _ = left.recv();
        Ok(rank)
    });
    entered.recv().unwrap();
    let now = comm.progress();
    assert_eq!((now.number, now.name, now.running), (before + 4, "a long one", true));
    leave.send(()).unwrap();
    assert_eq!(pending.wait(), Ok(rank));
    assert!(!comm.progress().running);
}

/// Checks that an operation waits for the operations that were started before it, on every rank. Otherwise buffers of
/// different lengths would be summed.
fn order(comm: &Comm) {
    for round in 0..200usize {
        let started: Vec<_> = (0..3)
            .map(|i| {
                comm.start("started sum", move |world| {
                    let mut values = vec![1f32; 1 + i * 1_000];
                    world.sum_f32(&mut values)?;
                    Ok(values)
                })
            })
            .collect();
        let mut own = vec![round as f64; 77];
        comm.run("own sum", |world| world.sum_f64(&mut own)).unwrap();
        let size = comm.world().unwrap().size;
        assert_eq!(own, vec![(round * size) as f64; 77]);
        for (i, pending) in started.into_iter().enumerate() {
            assert_eq!(pending.wait(), Ok(vec![size as f32; 1 + i * 1_000]));
        }
    }
    println!("in order");
}

/// Runs `f` on rank 1. The other ranks wait in a collective operation that rank 1 never joins.
fn wait_for_the_end_after(comm: &Comm, rank: usize, f: fn(&World) -> Result<(), Error>) {
    let waited = match rank {
        1 => comm.run("the last stroke", f),
        _ => comm.run("waiting for rank 1", World::barrier),
    };
    unreachable!("nobody ended this rank: {waited:?}");
}

fn many_die() -> ! {
    for i in 0..8 {
        let _ = std::thread::Builder::new().spawn(move || comm::die(5, &format!("failure number {i}")));
    }
    comm::die(5, "failure of the main thread")
}

fn play(case: &str, ranks: usize) -> ProgramOutput {
    let mut command = program::on_ranks(ranks, std::env::current_exe().expect("the test program has a path"));
    command.args(["worker", "--exact", "--ignored", "--nocapture", "--test-threads=1"]).env(CASE, case);
    program::start(command).wait(program::PATIENCE)
}

fn succeed(case: &str, ranks: usize) -> String {
    play(case, ranks).succeeded().stdout
}

/// Runs a case that must fail with exit code `code` and print `message` to stderr exactly once.
fn fail(case: &str, ranks: usize, code: i32, message: &str) -> String {
    let ProgramOutput { status, stderr, took, .. } = play(case, ranks);
    assert_eq!(status.code(), Some(code), "{case}: {status}\n{stderr}");
    assert_eq!(stderr.matches(message).count(), 1, "{message:?} should stand once in\n{stderr}");
    assert!(took < longer(IN_TIME), "{case} took {took:?}");
    stderr
}

#[test]
fn collectives_return_known_answers_on_one_to_four_ranks() {
    for ranks in 1..=4 {
        assert_eq!(succeed("collectives", ranks).matches("all collectives right").count(), ranks);
    }
}

#[test]
fn integer_codecs_give_the_same_sums_and_residuals_on_one_to_four_ranks() {
    let sums = |ranks| -> Vec<String> {
        let text = succeed("codecs", ranks);
        text.split("sums of codecs: ").skip(1).map(|rest| rest.lines().next().unwrap_or("").to_string()).collect()
    };
    let alone = sums(1);
    assert_eq!(alone.len(), 1);
    for ranks in 2..=4 {
        assert_eq!(sums(ranks), vec![alone[0].clone(); ranks], "{ranks} ranks");
    }
}

#[test]
fn collectives_transfer_values_of_every_type() {
    for ranks in [0, 1, 3] {
        assert_eq!(succeed("values", ranks).matches("all values right").count(), ranks.max(1));
    }
}

#[test]
fn each_rank_knows_its_rank_node_and_launcher() {
    let text = succeed("world", 3);
    for rank in 0..3 {
        let place = format!("rank: {rank}, size: 3, node_rank: {rank}, node_size: 3");
        assert_eq!(text.matches(&place).count(), 1, "{text}");
    }
    assert_eq!(text.matches("launcher Some(").count(), 3, "{text}");
    assert_eq!(text.matches(&format!("verdict {:?}", Verdict::Ok)).count(), 3, "{text}");
}

#[test]
fn without_mpirun_there_is_one_rank() {
    let text = succeed("world", 0);
    assert!(text.contains("rank: 0, size: 1") && text.contains("launcher None"), "{text}");
    succeed("collectives", 0);
}

#[test]
fn progress_reports_the_last_operation() {
    succeed("progress", 2);
}

#[test]
fn a_second_launch_is_an_error() {
    succeed("twice", 1);
}

#[test]
fn errors_of_mpi_are_returned() {
    assert_eq!(succeed("errors", 2).matches("error of rank 1 right").count(), 1);
}

#[test]
fn a_panic_on_the_mpi_thread_ends_all_ranks_by_name() {
    let text = fail("queued panic", 3, 1, "rank 1: panic ");
    assert!(text.contains("thread mpi ") && text.contains("oar broken"), "{text}");
}

#[test]
fn a_panic_in_an_operation_of_the_caller_ends_all_ranks() {
    let text = fail("panic", 3, 1, "rank 1: panic ");
    assert!(text.contains("oar broken") && !text.contains("thread mpi"), "{text}");
}

#[test]
fn operations_run_in_the_order_they_were_started() {
    for ranks in [1, 2, 3] {
        assert_eq!(succeed("order", ranks).matches("in order").count(), ranks);
    }
}

#[test]
fn a_panic_in_any_thread_ends_all_ranks_by_name() {
    let text = fail("thread", 3, 1, "rank 1: panic ");
    assert!(text.contains("thread loader-0 ") && text.contains("record 17 is bad"), "{text}");
}

#[test]
fn die_ends_all_ranks_with_its_code_and_message() {
    fail("die", 2, 42, "rank 1: shard 3 is cut short\n");
}

#[test]
fn the_death_of_a_rank_ends_the_others() {
    let ended = play("killed", 2);
    assert!(!ended.status.success());
    assert!(ended.took < longer(IN_TIME), "took {:?}", ended.took);
}

#[test]
fn die_works_before_mpi_init_and_after_finalize() {
    fail("early", 0, 7, "too early\n");
    fail("late", 0, 9, "after the end of MPI\n");
    let text = play("early", 2).stderr;
    assert!(text.contains("rank 0: too early") || text.contains("rank 1: too early"), "{text}");
}

#[test]
fn a_single_rank_has_no_number_and_only_the_first_failure_is_printed() {
    let text = fail("many", 0, 5, "failure ");
    assert_eq!(text.lines().count(), 1, "{text}");
    assert!(text.starts_with("failure "), "{text}");
}

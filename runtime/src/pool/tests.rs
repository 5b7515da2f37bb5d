use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use super::*;

fn pool(n: usize) -> Pool {
    Pool::new(&PoolOptions::threads(n)).expect("threads")
}

#[test]
fn every_task_is_done_once() {
    for n_threads in [1, 2, 3, 9] {
        let pool = pool(n_threads);
        pool.enter(|| {
            assert_eq!(super::n_threads(), n_threads);
            for n_tasks in [0, 1, 2, 7, 100] {
                let done: Vec<_> = (0..n_tasks).map(|_| AtomicUsize::new(0)).collect();
                run(n_tasks, |i| {
                    done[i].fetch_add(1, Ordering::Relaxed);
                });
                assert!(done.iter().all(|n| n.load(Ordering::Relaxed) == 1));
            }
        });
        assert_eq!(super::n_threads(), 1);
    }
}

#[test]
fn many_regions_with_sleepers_in_between() {
    let pool = pool(4);
    let sum = AtomicU64::new(0);
    pool.enter(|| {
        for region in 0..20_000_u64 {
            run(3, |i| {
                sum.fetch_add(region * (i as u64 + 1), Ordering::Relaxed);
            });
            if region % 4000 == 0 {
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    });
    assert_eq!(sum.into_inner(), 6 * (19_999 * 20_000 / 2));
}

#[test]
fn tasks_share_out_nothing_and_see_no_pool() {
    let pool = pool(3);
    let n = AtomicUsize::new(0);
    pool.enter(|| {
        run(5, |_| {
            assert_eq!(super::n_threads(), 1);
            run(4, |_| {
                n.fetch_add(1, Ordering::Relaxed);
            });
        });
        assert_eq!(super::n_threads(), 3);
    });
    assert_eq!(n.into_inner(), 20);
}

#[test]
fn a_panic_of_a_task_comes_back_and_the_pool_goes_on() {
    let pool = pool(3);
    for _ in 0..50 {
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            pool.enter(|| run(6, |i| assert!(i != 4, "task {i}")));
        }));
        let payload = caught.expect_err("a task panics");
        assert_eq!(
            payload.downcast_ref::<String>().map(String::as_str),
            Some("task 4")
        );
        assert_eq!(super::n_threads(), 1);
    }
    pool.enter(|| run(6, |_| {}));
}

#[test]
fn several_threads_may_be_inside() {
    let pool = pool(2);
    let n = AtomicUsize::new(0);
    let inside = || {
        pool.enter(|| {
            for _ in 0..500 {
                run(4, |_| {
                    n.fetch_add(1, Ordering::Relaxed);
                });
            }
        });
    };
    std::thread::scope(|s| {
        for _ in 0..3 {
            s.spawn(inside);
        }
    });
    assert_eq!(n.into_inner(), 3 * 500 * 4);
}

#[test]
fn items_go_to_one_thread_each_and_results_keep_their_order() {
    let pool = pool(3);
    let mut data = vec![0; 1000];
    let squares = pool.enter(|| {
        rows(data.chunks_mut(3).enumerate(), |(i, part)| part.fill(i));
        map(0..500_usize, |i| i * i)
    });
    assert!(data.iter().enumerate().all(|(i, v)| *v == i / 3));
    assert!(squares.iter().enumerate().all(|(i, v)| *v == i * i));
    let failed = pool.enter(|| try_for_each(0..100, |i| if i >= 40 { Err(i) } else { Ok(()) }));
    assert_eq!(failed, Err(40));
}

#[test]
fn generation_and_prompts_have_their_own_numbers() {
    for (n_batch, n_generating, expected) in [(4, 2, (4, 2)), (1, 3, (1, 3)), (0, 2, (2, 2))] {
        let pool = Pool::new(&PoolOptions {
            n_batch,
            n_generating,
            spins: Some(0),
            ..PoolOptions::default()
        });
        let pool = pool.expect("threads");
        let found = pool.enter(|| (super::n_threads(), generating(super::n_threads)));
        assert_eq!(found, expected);
    }
    assert!(Pool::new(&PoolOptions::threads(MAX_THREADS + 1)).is_err());
}

/// Where each thread of the entered pool may run.
fn seats(n_threads: usize) -> Vec<CpuSet> {
    let seats = std::sync::Mutex::new(Vec::new());
    // A thread that waits takes no other task.
    let all_there = std::sync::Barrier::new(n_threads);
    run(n_threads, |_| {
        let seat = placement::affinity::get().expect("threads run somewhere");
        region::lock(&seats).push(seat);
        all_there.wait();
    });
    seats.into_inner().expect("nobody panicked")
}

#[cfg(target_os = "linux")]
#[test]
fn threads_run_where_they_are_asked_to() {
    let allowed = placement::affinity::get().expect("the test runs somewhere");
    let cpus: Vec<usize> = allowed.iter().take(2).collect();
    let chosen: CpuSet = cpus.iter().copied().collect();
    for strict in [false, true] {
        let options = PoolOptions {
            placement: Placement {
                cpus: Some(chosen),
                strict,
                ..Placement::default()
            },
            ..PoolOptions::threads(cpus.len())
        };
        let pool = Pool::new(&options).expect("threads on processors that are there");
        for _ in 0..3 {
            let found = pool.enter(|| seats(cpus.len()));
            if strict {
                let mut own: Vec<_> = found.iter().flat_map(CpuSet::iter).collect();
                own.sort_unstable();
                assert_eq!(own, cpus);
            } else {
                assert!(found.iter().all(|seat| *seat == chosen), "{found:?}");
            }
            // Only inside.
            assert_eq!(placement::affinity::get().expect("it runs"), allowed);
        }
        let too_many = PoolOptions {
            n_generating: cpus.len() + 1,
            ..options
        };
        let made = Pool::new(&too_many).map_err(|e| e.to_string());
        assert_eq!(made.is_err(), strict);
    }
}

#[cfg(target_os = "linux")]
#[test]
fn threads_inside_at_the_same_time_do_not_share_the_first_seat() {
    let here = || placement::affinity::get().expect("the test runs somewhere");
    let cpus: Vec<usize> = here().iter().take(2).collect();
    let chosen: CpuSet = cpus.iter().copied().collect();
    let options = PoolOptions {
        placement: Placement {
            cpus: Some(chosen),
            strict: true,
            ..Placement::default()
        },
        ..PoolOptions::threads(cpus.len())
    };
    let pool = Pool::new(&options).expect("threads on processors that are there");
    let first = CpuSet::from_iter([cpus[0]]);
    for _ in 0..3 {
        let all_inside = std::sync::Barrier::new(3);
        let inside = || {
            let before = here();
            let seat = pool.enter(|| {
                all_inside.wait();
                // Not a second time.
                assert_eq!(pool.enter(here), here());
                let seat = here();
                all_inside.wait();
                seat
            });
            assert_eq!(here(), before);
            seat
        };
        let mut seats = std::thread::scope(|s| {
            let threads = [(); 3].map(|()| s.spawn(inside));
            threads.map(|t| t.join().expect("it enters"))
        });
        seats.sort_by_key(CpuSet::len);
        assert_eq!(seats, [first, chosen, chosen]);
        assert_eq!(pool.enter(here), first);
    }
}

#[cfg(target_os = "linux")]
#[test]
fn threads_and_memory_are_spread_over_nodes() {
    let allowed = placement::affinity::get().expect("the test runs somewhere");
    let cpus: Vec<usize> = allowed.iter().take(2).collect();
    // As if each processor had memory of its own.
    let machine = cpus::Topology {
        cores: Vec::new(),
        nodes: cpus.iter().map(|&cpu| CpuSet::from_iter([cpu])).collect(),
    };
    let options = PoolOptions {
        placement: Placement {
            cpus: Some(cpus.iter().copied().collect()),
            numa: Some(Numa::Distribute),
            huge_pages: true,
            ..Placement::default()
        },
        ..PoolOptions::threads(cpus.len())
    };
    let seats_there = options.placement.seats_on(&machine, &allowed, cpus[0]);
    let pool = Pool::with_seats(&options, Some(seats_there.expect("seats"))).expect("threads");
    pool.enter(|| {
        let found = seats(cpus.len());
        assert!(machine.nodes.iter().all(|node| found.contains(node)), "{found:?}");
        let before = placement::affinity::get().expect("it runs");
        for n in [0, 1, 5 << 18, 3 << 20] {
            let mut fresh = vec![0_u32; n];
            place(&mut fresh);
            assert!(fresh.iter().all(|&v| v == 0));
            resize(&mut fresh, n + 1_000_000, 0);
            assert_eq!(fresh.len(), n + 1_000_000);
            assert!(fresh.iter().all(|&v| v == 0));
        }
        assert_eq!(placement::affinity::get().expect("it runs"), before);
        let all = off_seat(placement::affinity::get).expect("it runs");
        assert_eq!(all.len(), cpus.len());
        assert_eq!(placement::affinity::get().expect("it runs"), before);
        let beside = beside();
        assert_eq!(beside.spreads(), cpus.len() > 1);
        std::thread::spawn(move || {
            beside.leave_seat();
            assert_eq!(placement::affinity::get().expect("it runs").len(), cpus.len());
            for i in 0..4 {
                beside.go(i);
                let cpu = cpus[i % cpus.len()];
                assert!(placement::affinity::get().expect("it runs").contains(cpu));
            }
        })
        .join()
        .expect("the thread is where it is sent");
    });
}

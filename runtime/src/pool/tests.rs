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
    std::thread::scope(|s| {
        for _ in 0..3 {
            s.spawn(|| {
                pool.enter(|| {
                    for _ in 0..500 {
                        run(4, |_| {
                            n.fetch_add(1, Ordering::Relaxed);
                        });
                    }
                });
            });
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
        });
        let pool = pool.expect("threads");
        let found = pool.enter(|| (super::n_threads(), generating(super::n_threads)));
        assert_eq!(found, expected);
    }
    assert!(Pool::new(&PoolOptions::threads(MAX_THREADS + 1)).is_err());
}

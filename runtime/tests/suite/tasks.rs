//! `gguf-perplexity` on tasks with answers to choose from.

use crate::cli::{PERPLEXITY, Work, error, ok};
use crate::common::{Tiny, write};

fn tasks(work: &Work, args: &[&str]) -> serde_json::Value {
    let tool = ["-m", "tiny.gguf", "-t", "2", "--json"];
    serde_json::from_str(&ok(&work.run(PERPLEXITY, &[&tool, args].concat()))).unwrap()
}

#[test]
fn tasks_choose_what_the_model_finds_likeliest() {
    let work = Work::new(&Tiny::new());
    let task = |i: usize| {
        format!(
            "the inn {i}\n{}\nwas low\nin Fenquin and\nthe\näther in the inn\n",
            i % 4
        )
    };
    write(
        &work.path("hs.txt"),
        (0..12).map(task).collect::<String>().as_bytes(),
    );
    let all = tasks(&work, &["-f", "hs.txt", "--hellaswag"]);
    assert_eq!(
        (all["tasks"].as_u64(), all["chance_percent"].as_f64()),
        (Some(12), Some(25.0))
    );
    let results = all["results"].as_array().unwrap();
    let mut correct = 0;
    for r in results {
        let scores: Vec<f64> = r["log_probs"]
            .as_array()
            .unwrap()
            .iter()
            .map(|s| s.as_f64().unwrap())
            .collect();
        let chosen = r["chosen"].as_u64().unwrap() as usize;
        assert!(scores.iter().all(|&s| s < 0.0 && s <= scores[chosen]), "{r}");
        correct += usize::from(r["right"][0].as_u64() == Some(chosen as u64));
    }
    assert_eq!(all["correct"].as_f64(), Some(correct as f64));
    // Sequences on their own give the same scores, and the choice of some tasks is the same every time.
    let single = tasks(
        &work,
        &[
            "-f",
            "hs.txt",
            "--hellaswag",
            "-b",
            "1",
            "-ub",
            "3",
            "--hellaswag-tasks",
            "5",
        ],
    );
    for r in single["results"].as_array().unwrap() {
        let same = results.iter().find(|a| a["task"] == r["task"]).unwrap();
        for (a, b) in r["log_probs"]
            .as_array()
            .unwrap()
            .iter()
            .zip(same["log_probs"].as_array().unwrap())
        {
            assert!(
                (a.as_f64().unwrap() / b.as_f64().unwrap() - 1.0).abs() < 1e-5,
                "{r} {same}"
            );
        }
    }
    let lines = ok(&work.run(PERPLEXITY, &["-m", "tiny.gguf", "-f", "hs.txt", "--hellaswag"]));
    assert!(
        lines.starts_with("task\tacc_norm\t") && lines.lines().count() == 13,
        "{lines}"
    );
    assert!(lines.lines().nth(1).unwrap().ends_with("%]"), "{lines}");
}

#[test]
fn winogrande_and_multiple_choice_have_final_lines() {
    let work = Work::new(&Tiny::new());
    let line = |i: usize| {
        format!(
            "{i},the _ was low and the inn was in Fenquin.,inn,äther,{}\n",
            i % 2 + 1
        )
    };
    write(
        &work.path("wg.csv"),
        (0..101).map(line).collect::<String>().as_bytes(),
    );
    let run = |args: &[&str]| ok(&work.run(PERPLEXITY, &[&["-m", "tiny.gguf"], args].concat()));
    let out = run(&["-f", "wg.csv", "--winogrande"]);
    assert!(out.contains("\nFinal Winogrande score(101 tasks): "), "{out}");
    assert_eq!(
        tasks(
            &work,
            &["-f", "wg.csv", "--winogrande", "--winogrande-tasks", "3"]
        )["tasks"],
        3
    );

    let text = |s: &str| [&(s.len() as u32).to_le_bytes(), s.as_bytes()].concat();
    let number = |n: u32| n.to_le_bytes().to_vec();
    let set = [
        number(3),
        text("was"),
        text("in the inn"),
        text("and"),
        number(0),
        number(1),
        number(0),
    ]
    .concat();
    let one = [text("the inn"), set.clone(), set].concat();
    let offsets: Vec<u8> = (0..100u32)
        .flat_map(|i| (404 + i * one.len() as u32).to_le_bytes())
        .collect();
    write(
        &work.path("mc.bin"),
        &[number(100), offsets, one.repeat(100)].concat(),
    );
    let out = run(&["-f", "mc.bin", "--multiple-choice"]);
    assert!(out.contains("Random chance: 33.3333 +/- 4.7"), "{out}");

    for (name, bytes, kind) in [
        ("hs.txt", b"a\n1\nb".as_slice(), "--hellaswag"),
        ("bad.csv", b"1,two", "--winogrande"),
        ("bad.bin", b"\xFF\xFF\xFF\xFF", "--multiple-choice"),
        ("none.txt", b"", "--hellaswag"),
        ("none.csv", b"\n", "--winogrande"),
        ("none.bin", b"\0\0\0\0", "--multiple-choice"),
    ] {
        write(&work.path(name), bytes);
        let e = error(&work.run(PERPLEXITY, &["-m", "tiny.gguf", "-f", name, kind]), 1);
        assert!(e.contains(name), "{e}");
    }
    let e = error(
        &work.run(
            PERPLEXITY,
            &["-m", "tiny.gguf", "-f", "wg.csv", "--winogrande", "-c", "4"],
        ),
        2,
    );
    assert!(e.contains("task 1 needs"), "{e}");
}

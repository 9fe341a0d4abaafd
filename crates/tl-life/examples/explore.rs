//! Explores one setting and prints what was found. See docs/block-life.md.
//!
//!     cargo run --release -p tl-life --example explore -- requests=1 faults=2
#![allow(clippy::print_stdout, reason = "it is what the program is for")]

use std::time::Instant;

use tl_life::setting::{Faults, Setting};
use tl_life::{Life, search};

fn main() {
    let two = std::env::args().any(|word| word == "requests=2");
    let mut setting = if two { Setting::two(1) } else { Setting::one(1) };
    let mut limit = usize::MAX;
    let mut sought = None;
    for word in std::env::args().skip(1) {
        let Some((key, value)) = word.split_once('=') else {
            println!("expected key=value, not {word}");
            std::process::exit(2);
        };
        let number: u32 = value.parse().unwrap_or(u32::from(value == "true"));
        let yes = number > 0;
        match key {
            "show" => sought = Some(value.split(',').map(|s| s.replace('_', " ")).collect()),
            "requests" if number == 1 || number == 2 => {}
            "faults" => setting.faults = Faults::each(1, number as u8),
            "crash_p" => setting.faults.crash_p = number as u8,
            "crash_d" => setting.faults.crash_d = number as u8,
            "crash_g" => setting.faults.crash_g = number as u8,
            "lose" => setting.faults.lose = number as u8,
            "duplicate" => setting.faults.duplicate = number as u8,
            "damage" => setting.faults.damage = number as u8,
            "overtake" => setting.faults.overtake = number as u8,
            "evict" => setting.faults.evict = number as u8,
            "p" => setting.p_blocks = number,
            "d" => setting.d_blocks = number,
            "attempts" => setting.max_attempts = number,
            "patience" => setting.patience = number as u8,
            "warm" => setting.warm = yes,
            "streamed" => setting.streamed = yes,
            "leave" => setting.leave = yes,
            "delay" => setting.delay = yes,
            "time" => setting.time = yes,
            "late" => setting.late = yes,
            "fence" => setting.fence = yes,
            "limit" => limit = number as usize,
            _ => {
                println!("unknown key {key}");
                std::process::exit(2);
            }
        }
    }
    let from = Instant::now();
    let life = Life::new(setting);
    let life = if let Some(sought) = sought { life.seeking(sought) } else { life };
    let found = search(life, limit);
    print!("{}", found.report);
    println!("outcomes: {:?}", found.outcomes);
    println!("{:.1} s", from.elapsed().as_secs_f64());
    if found.report.found.is_some() {
        std::process::exit(1);
    }
}

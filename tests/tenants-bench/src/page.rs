//! The self-contained page with the plots.

use std::fmt::Write as _;

use warmroute_demo::report::plot::{Series, bars, distribution};
use warmroute_demo::report::{STYLE, escape, ratio};

use crate::faults::Faults;
use crate::interactive::Interactive;
use crate::ledger::verdict::Ledger;
use crate::report::Report;
use crate::shares::Fairness;

/// The whole page: style and plots inside, nothing loaded from elsewhere. A part that was not measured is absent.
#[must_use]
pub fn page(report: &Report) -> String {
    let sections: Vec<String> = [
        report.fairness.as_ref().map(fairness),
        report.interactive.as_ref().map(interactive),
        report.ledger.as_ref().map(ledger),
        report.faults.as_ref().map(faults),
        report.budgets.as_ref().map(|budgets| {
            let rounds = budgets.admitted.len();
            section(
                "Budgets",
                &format!(
                    "50 calls at once on a budget for 5, {rounds} times: {} admitted beyond it.",
                    budgets.overshoot
                ),
                "",
            )
        }),
        report.leaving.as_ref().map(|leaving| {
            section(
                "Clients that leave",
                &format!(
                    "{} requests waited until their clients left; {} were left over.",
                    leaving.requests, leaving.left_over
                ),
                "",
            )
        }),
    ]
    .into_iter()
    .flatten()
    .collect();
    let mut missed = String::new();
    for line in report.missed() {
        // Writing to a string cannot fail.
        let _ = write!(missed, "<p><strong>Missed: {}</strong></p>", escape(&line));
    }
    format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\
         <title>Warmroute: what tenants get</title><style>{STYLE}</style></head><body>\
         <h1>What tenants get</h1><p>A real Envoy with four workers; the engines are simulated and run faster than \
         real ones: compare the sides, not the milliseconds.</p>{missed}{}</body></html>\n",
        sections.concat()
    )
}

fn section(title: &str, text: &str, plots: &str) -> String {
    format!("<section><h2>{title}</h2><p>{text}</p><div class=\"plots\">{plots}</div></section>")
}

fn key(names: &[(&str, &str)]) -> String {
    let one =
        |(class, name): &(&str, &str)| format!("<span><i class=\"{class}\"></i>{name}</span>");
    format!("<p class=\"key\">{}</p>", names.iter().map(one).collect::<String>())
}

fn fairness(fairness: &Fairness) -> String {
    let names: Vec<String> = fairness.weights.keys().map(|&name| name.to_owned()).collect();
    let all: f64 = fairness.weights.values().sum();
    let percent = |share: f64| (share * 1_000.0).round() / 10.0;
    let due: Vec<f64> = fairness.weights.values().map(|weight| percent(weight / all)).collect();
    let got: Vec<f64> = fairness.token_share.values().map(|&share| percent(share)).collect();
    let shares = bars(
        "Shares in tokens",
        "percent of all tokens",
        &names,
        &[
            Series { class: "a", label: "entitled to", values: &due },
            Series { class: "b", label: "got", values: &got },
        ],
    );
    let course: Vec<f64> = fairness.course.iter().map(|&share| percent(share)).collect();
    let tenth = course.len().div_ceil(10).max(1);
    let some: Vec<f64> = course.iter().copied().skip(tenth - 1).step_by(tenth).collect();
    let marks: Vec<String> = (1..=some.len()).map(|at| (at * tenth).to_string()).collect();
    let over_time = bars(
        "A's share so far",
        "A's percent of the tokens so far, by B's completed requests",
        &marks,
        &[Series { class: "b", label: "got", values: &some }],
    );
    let turns = &fairness.round_robin_requests;
    section(
        "Shares under saturation",
        &format!(
            "A is entitled to three times B, and B's prompts are 60 times A's; both push as hard as they can. Round \
             robin gave turns {turns:?}. While A was idle, B had {} % of the tokens and {} % of the places.",
            percent(fairness.alone_token_share),
            percent(fairness.alone_places)
        ),
        &(key(&[("a", "entitled to"), ("b", "got")]) + &shares + &over_time),
    )
}

fn interactive(interactive: &Interactive) -> String {
    let [fifo, priority, weighted] = &interactive.samples_ms;
    let series = [
        Series { class: "a", label: "one queue", values: fifo },
        Series { class: "b", label: "priority", values: priority },
        Series { class: "c", label: "weights 3:1", values: weighted },
    ];
    let times = distribution("Time to A's first token", &series);
    let lower = |other: Option<f64>| ratio(interactive.fifo_ms.p99, other);
    section(
        "An urgent request behind 2,000 others",
        &format!(
            "B sends 2,000 requests at once; A's time to first token, while they wait. p99 is lower than in one queue \
             by {} with priority and by {} with weights.",
            lower(interactive.priority_ms.p99),
            lower(interactive.weighted_ms.p99)
        ),
        &(key(&[("a", "one queue"), ("b", "priority"), ("c", "weights 3:1")]) + &times),
    )
}

fn ledger(ledger: &Ledger) -> String {
    let names: Vec<String> = ledger.disconnect_errors.keys().map(i64::to_string).collect();
    let counts: Vec<f64> = ledger.disconnect_errors.values().map(|&count| count as f64).collect();
    let errors = bars(
        "Tokens of difference after a disconnect",
        "tokens of difference for requests whose clients left in the middle",
        &names,
        &[Series { class: "b", label: "requests", values: &counts }],
    );
    section(
        "Accounts",
        &format!(
            "{} requests, with a restart of the agent and a reload of the filter in the middle: {} tokens of \
             difference to the engines' counts for those that ended by themselves, {} records lost, {} doubled.",
            ledger.requests, ledger.token_difference, ledger.lost, ledger.duplicated
        ),
        &errors,
    )
}

fn faults(faults: &Faults) -> String {
    let names: Vec<String> =
        faults.recovery_ms.iter().map(|(fault, _)| (*fault).replace("panic", "trap")).collect();
    let took = |took: &Option<u64>| took.map_or(0.0, |took| took as f64);
    let times: Vec<f64> = faults.recovery_ms.iter().map(|(_, ms)| took(ms)).collect();
    let recovery = bars(
        "Recovery from faults",
        "ms until all that were under way were over and 60 more served; 0: not in time",
        &names,
        &[Series { class: "b", label: "recovery", values: &times }],
    );
    section(
        "Traps and pushes under saturation",
        &format!(
            "The engine has a limit of {} requests at once, and had at most {}.",
            faults.limit, faults.most_at_once
        ),
        &recovery,
    )
}

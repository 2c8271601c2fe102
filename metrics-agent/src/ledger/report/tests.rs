use super::{By, Filter, Format, Period, Prices, Report, ReportError, report};
use crate::ledger::store::{Store, open_to_read};
use crate::ledger::tests::record;
use warmroute_shared_state::usage_record::{EndCause, UsageRecord};

/// Two tenants, two models, two days, four causes.
fn records() -> Vec<UsageRecord> {
    let a = UsageRecord {
        at_ms: 1_796_029_200_000,
        tenant: "a".into(),
        model: "m".into(),
        input_tokens: 1000,
        cached_tokens: 400,
        output_tokens: 100,
        reasoning_tokens: 10,
        charged_tokens: 1100,
        ..record(1)
    };
    let b = UsageRecord { tenant: "b".into(), ..a.clone() };
    vec![
        a.clone(),
        UsageRecord { id: (1, 2), at_ms: a.at_ms + 86_400_000, ..a.clone() },
        UsageRecord { id: (1, 3), model: "=x,\"y\"".into(), cached_tokens: 0, ..a.clone() },
        UsageRecord { id: (1, 4), cause: EndCause::Disconnect, exact: false, ..b.clone() },
        // What it asked for is not what it used.
        UsageRecord { id: (1, 5), cause: EndCause::Rejected, charged_tokens: 0, exact: false, ..b },
    ]
}

fn of(
    filter: impl Fn(Filter) -> Filter,
    by: &[By],
    prices: Option<&str>,
) -> Result<Report, ReportError> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("usage.sqlite");
    let records = records();
    Store::open(&file).unwrap().insert(records.iter()).unwrap();
    let period = Period::new(None, None, 0).unwrap();
    let prices = prices.map(|yaml| Prices::read(yaml).unwrap());
    let filter = filter(Filter { tenant: None, model: None, period, max_rows: usize::MAX });
    report(&open_to_read(&file).unwrap(), &filter, by, prices.as_ref())
}

const PRICES: &str = "currency: EUR\nmodels: {m: {input: 2, cachedInput: 0.5, output: 10}, '*': {input: 1, output: 1}}";

#[test]
fn a_table_has_a_row_for_each_and_one_for_all() {
    let report = of(|filter| filter, &[By::Tenant, By::Cause], Some(PRICES)).unwrap();
    let expected = "\
tenant  cause       requests  input  cached  output  reasoning  charged  estimated  natural  disconnect  upstream_error  timeout  evicted  rejected    cost
a       natural            3   3000     800     300         30     3300          0        3           0               0        0        0         0  0.0059
b       disconnect         1   1000     400     100         10     1100          1        0           1               0        0        0         0  0.0024
b       rejected           1      0       0       0          0        0          0        0           0               0        0        0         1    0.00
total                      5   4000    1200     400         40     4400          1        3           1               0        0        0         1  0.0083
cost in EUR
";
    assert_eq!(report.render(Format::Table), expected);
}

#[test]
fn csv_is_read_by_any_spreadsheet_and_run_by_none() {
    let report = of(|filter| filter, &[By::Model, By::Day], None).unwrap();
    let expected = [
        "model,day,requests,input,cached,output,reasoning,charged,estimated,natural,disconnect,\
         upstream_error,timeout,evicted,rejected",
        "\"'=x,\"\"y\"\"\",2026-11-30,1,1000,0,100,10,1100,0,1,0,0,0,0,0",
        "m,2026-11-30,3,2000,800,200,20,2200,1,1,1,0,0,0,1",
        "m,2026-12-01,1,1000,400,100,10,1100,0,1,0,0,0,0,0",
        "",
    ];
    assert_eq!(report.render(Format::Csv), expected.join("\r\n"));
}

#[test]
fn json_has_whole_numbers_and_cost_as_text() {
    let report = of(|filter| filter, &[By::Tenant], Some(PRICES)).unwrap();
    let json: serde_json::Value = serde_json::from_str(&report.render(Format::Json)).unwrap();
    assert_eq!(json["currency"], "EUR");
    assert_eq!(json["rows"][1]["tenant"], "b");
    assert_eq!(json["rows"][1]["input"], 1000);
    assert_eq!(json["total"]["cost"], "0.0083");
    assert_eq!(json["total"]["requests"], 5);
}

#[test]
fn filters_are_exact() {
    let tenant = |filter| Filter { tenant: Some("a".into()), ..filter };
    assert_eq!(of(tenant, &[], None).unwrap().total.requests, 3);
    let model = |filter| Filter { model: Some("m".into()), ..filter };
    assert_eq!(of(model, &[], None).unwrap().total.requests, 4);
    let nobody = |filter| Filter { tenant: Some("a' OR 1=1 --".into()), ..filter };
    let report = of(nobody, &[By::Tenant], None).unwrap();
    assert_eq!((report.rows.len(), report.total.requests), (0, 0));
    for (since, until, requests) in [
        (None, Some("2026-12-01"), 4),
        (Some("2026-12-01"), None, 1),
        (Some("2026-11-30T09:00:00Z"), Some("2026-11-30T09:00:00.001Z"), 4),
        (Some("2026-11-30T09:00:00.001Z"), Some("2026-12-01T09:00:00Z"), 0),
        (Some("12h"), None, 1),
    ] {
        let period = Period::new(since, until, 1_796_115_600_000).unwrap();
        let report = of(|filter| Filter { period, ..filter }, &[], None).unwrap();
        assert_eq!(report.total.requests, requests, "{since:?} {until:?}");
    }
}

#[test]
fn more_rows_than_are_taken_are_no_report() {
    let at_most = |max_rows| of(|filter| Filter { max_rows, ..filter }, &[By::Tenant], None);
    assert_eq!(at_most(2).unwrap().rows.len(), 2);
    assert!(matches!(at_most(1), Err(ReportError::TooManyRows(1))));
}

#[test]
fn no_rows_are_a_table_too() {
    let nobody = |filter| Filter { tenant: Some("c".into()), ..filter };
    let report = of(nobody, &[], None).unwrap();
    assert_eq!(report.render(Format::Table).lines().count(), 2);
    assert_eq!(report.render(Format::Csv).lines().count(), 1);
}

#[test]
fn tokens_without_a_price_are_no_bill() {
    let one = "models: {m: {input: 1, output: 1}}";
    assert!(matches!(of(|filter| filter, &[], Some(one)), Err(ReportError::NoPrice(_))));
    let model = |filter| Filter { model: Some("m".into()), ..filter };
    assert_eq!(of(model, &[], Some(one)).unwrap().total.cost.unwrap().to_string(), "0.0033");
}

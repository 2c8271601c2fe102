//! The bucket table of section 6.2 of the article that the part was specified by: balance 20,000 of a larger
//! capacity, no refill (time stands still), 2 requests at once.

use super::*;

const TPM: u64 = 1_000_000;

struct Table {
    buckets: Buckets,
    tenant: Tenant,
}

impl Table {
    fn new() -> Self {
        let limit = Limit {
            model: "llama-70b".into(),
            tpm: Some(TPM),
            concurrency: Some(2),
            max_completion_tokens_default: Some(1024),
            ..Limit::default()
        };
        let mut table = Self { buckets: Buckets::default(), tenant: tenant("b", vec![limit]) };
        let all_but = Demand { input_tokens: TPM - 20_000, max_output: Some(0), answers: 1 };
        let budget = Budget::of(&table.tenant, "llama-70b", &all_but);
        table.buckets.take_all(&budget.asks, 0).unwrap();
        table.buckets.settle(&budget.asks, budget.reserved, 0);
        table
    }

    fn arrives(&mut self, input: u64, max: Option<u64>) -> (Budget, Result<(), Kind>) {
        let demand = Demand { input_tokens: input, max_output: max, answers: 1 };
        let budget = Budget::of(&self.tenant, "llama-70b", &demand);
        let taken = self.buckets.take_all(&budget.asks, 0);
        (budget, taken.map(|_| ()).map_err(|refusal| refusal.ask.bucket.kind()))
    }

    fn stands(&mut self) -> (i64, i64) {
        let level =
            |kind, limit| Ask { bucket: BucketId::new("b", "llama-70b", kind), limit, amount: 0 };
        let tokens = self.buckets.level(&level(Kind::Tokens, TPM), 0).balance;
        let places = self.buckets.level(&level(Kind::Concurrency, 2), 0).balance;
        (tokens, 2 - places)
    }
}

crate::tests! {
    fn the_table_row_by_row() {
        let mut table = Table::new();
        assert_eq!(table.stands(), (20_000, 0));

        let (r1, taken) = table.arrives(3_000, Some(1024));
        assert_eq!((r1.reserved, taken, table.stands()), (4_024, Ok(()), (15_976, 1)));
        let (r2, taken) = table.arrives(6_000, Some(4096));
        assert_eq!((r2.reserved, taken, table.stands()), (10_096, Ok(()), (5_880, 2)));
        // Enough tokens, but two are under way.
        let (_, taken) = table.arrives(500, Some(1024));
        assert_eq!((taken, table.stands()), (Err(Kind::Concurrency), (5_880, 2)));
        table.buckets.settle(&r1.asks, 3_100 + 210, 0);
        assert_eq!(table.stands(), (6_594, 1));
        let (r3, taken) = table.arrives(500, None);
        assert_eq!((r3.reserved, taken, table.stands()), (1_524, Ok(()), (5_070, 2)));
        // Cut off; the last usage said so much.
        table.buckets.settle(&r2.asks, 6_050 + 1_200, 0);
        assert_eq!(table.stands(), (7_916, 1));
        let (r4, taken) = table.arrives(30_000, None);
        assert_eq!((r4.reserved, taken, table.stands()), (31_024, Err(Kind::Tokens), (7_916, 1)));
        // Estimated too low: charged.
        table.buckets.settle(&r3.asks, 620 + 1_024, 0);
        assert_eq!(table.stands(), (7_796, 0));
    }
}

//! The buckets against a model of them: a call takes one token of each, or none.

use std::time::Duration;

use mcp_redis::{Bucket, Decision, Limit, Limits, RateLimits, Redis};
use portcullis_services::RedisServer;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use tokio::runtime::Runtime;

use crate::{connect, server};

/// Everything is counted in parts of a token, of which there are so many: an hour brings a bucket a whole number of them.
const PARTS: u32 = 24;

#[derive(Clone, Debug)]
enum Step {
    /// Calls the tool that has limits of its own, or another one, as one of two users.
    Call { limited: bool, user: usize },
    /// Lets so many hours pass.
    Wait(u32),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (any::<bool>(), 0..2_usize).prop_map(|(limited, user)| Step::Call { limited, user }),
        1 => (1..30_u32).prop_map(Step::Wait),
    ]
}

/// A bucket as it has to be: its capacity, and the parts of tokens in it.
struct Modelled {
    capacity: u32,
    parts: u32,
}

/// All buckets of two users: shared, shared of the tool, and of each user for all tools and for the tool.
struct Model([Modelled; 6]);

impl Model {
    /// The buckets of a call, in order.
    fn of_call(limited: bool, user: usize) -> Vec<usize> {
        if limited { vec![0, 1, 2 + user, 4 + user] } else { vec![0, 2 + user] }
    }

    /// The position, among the buckets of a call, of the one that refuses it.
    fn call(&mut self, buckets: &[usize]) -> Option<usize> {
        let short = buckets.iter().position(|bucket| self.0[*bucket].parts < PARTS);
        if short.is_none() {
            for bucket in buckets {
                self.0[*bucket].parts -= PARTS;
            }
        }
        short
    }

    fn wait(&mut self, hours: u32) {
        for bucket in &mut self.0 {
            bucket.parts = (bucket.parts + hours * bucket.capacity).min(bucket.capacity * PARTS);
        }
    }
}

const USERS: [&str; 2] = ["alice", "bob"];

/// Makes every bucket older.
async fn wait(server: &RedisServer, hours: u32) {
    let script = "for _, key in ipairs(redis.call('KEYS', '*')) do \
                  redis.call('HINCRBY', key, 'last_refill', ARGV[1]) end";
    let micros = i64::from(hours) * 3_600_000_000;
    server.cli(&["EVAL", script, "0", &format!("-{micros}")]).await.unwrap();
}

async fn agree(server: &RedisServer, redis: &Redis, capacities: [u32; 4], steps: &[Step]) {
    server.cli(&["FLUSHDB"]).await.unwrap();
    // The tokens of a whole bucket in a day: the time that the test takes brings less than one part.
    let limit = |tokens| Some(Limit::new(tokens, Duration::from_hours(24)).unwrap());
    let [shared, tool_shared, per_user, tool_per_user] = capacities;
    let mut limits = RateLimits::new("ns", "server");
    limits.all = Limits { shared: limit(shared), per_user: limit(per_user) };
    let own = Limits { shared: limit(tool_shared), per_user: limit(tool_per_user) };
    limits.tools.insert("limited".to_owned(), own);
    let full = |capacity| Modelled { capacity, parts: capacity * PARTS };
    let mut model = Model([shared, tool_shared, per_user, per_user, tool_per_user, tool_per_user].map(full));
    for (index, step) in steps.iter().enumerate() {
        match *step {
            Step::Wait(hours) => {
                model.wait(hours);
                wait(server, hours).await;
            }
            Step::Call { limited, user } => {
                let buckets = limits.buckets(if limited { "limited" } else { "free" }, USERS[user]);
                let refusing = match redis.consume(&buckets).await.unwrap() {
                    Decision::Allowed => None,
                    Decision::Refused(bucket) => buckets.iter().position(|other: &Bucket| other == bucket),
                };
                let expected = model.call(&Model::of_call(limited, user));
                assert_eq!(refusing, expected, "step {index} of {steps:?} with {capacities:?}");
            }
        }
    }
}

#[test]
fn a_call_takes_a_token_of_each_bucket_or_of_none() {
    let runtime = Runtime::new().unwrap();
    let server = runtime.block_on(server());
    let redis = connect(&server.address());
    let config = ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() };
    let inputs = (prop::array::uniform4(1..5_u32), prop::collection::vec(step(), 1..40));
    let result = TestRunner::new(config).run(&inputs, |(capacities, steps)| {
        runtime.block_on(agree(&server, &redis, capacities, &steps));
        Ok(())
    });
    result.unwrap();
}

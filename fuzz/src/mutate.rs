//! Mutations of seeds, the same for the same start.

use serde_json::{Value, json};

/// Tokens that JSON readers and Kubernetes' conventions trip over.
const TOKENS: [&str; 20] = [
    "null",
    "{}",
    "[]",
    "\"\"",
    "-0",
    "1e999",
    "18446744073709551615",
    "-9223372036854775809",
    "0.1",
    "\\u0000",
    "\\ud800",
    "\"apiVersion\":",
    "\"metadata\":",
    "\"annotations\":",
    "\"a/b~c\":",
    ",",
    "}",
    "[[[[",
    "{\"spec\":",
    "\u{feff}",
];

/// Makes bodies from seeds.
#[derive(Debug)]
pub struct Mutator {
    state: u64,
}

impl Mutator {
    /// A mutator that goes the same way for the same start.
    pub fn starting_at(start: u64) -> Self {
        Self { state: start | 1 }
    }

    /// A body made from one of the seeds, often with a piece of another.
    pub fn body(&mut self, seeds: &[Vec<u8>]) -> Vec<u8> {
        let mut body = self.pick(seeds).clone();
        for _ in 0..=self.below(3) {
            if self.below(3) > 0
                && let Ok(mut tree) = serde_json::from_slice(&body)
            {
                let other: &Vec<u8> = self.pick(seeds);
                let donor = serde_json::from_slice(other).unwrap_or_default();
                self.rearrange(&mut tree, &donor);
                body = tree.to_string().into_bytes();
            } else {
                self.damage(&mut body, seeds);
            }
        }
        body
    }

    /// Xorshift: good enough to wander, and no dependency.
    fn next(&mut self) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.state
    }

    fn below(&mut self, bound: usize) -> usize {
        let bound = u64::try_from(bound.max(1)).unwrap_or(1);
        usize::try_from(self.next() % bound).unwrap_or_default()
    }

    fn pick<'s, T>(&mut self, from: &'s [T]) -> &'s T {
        &from[self.below(from.len())]
    }

    /// Damages a body so that it is usually not JSON any more.
    fn damage(&mut self, body: &mut Vec<u8>, seeds: &[Vec<u8>]) {
        let (a, b) = (self.below(body.len() + 1), self.below(body.len() + 1));
        let (start, end) = (a.min(b), a.max(b).min(a.min(b) + 64));
        match self.below(4) {
            0 => drop(body.drain(start..end)),
            1 => {
                let token = self.pick(&TOKENS).as_bytes().to_vec();
                body.splice(start..start, token);
            }
            2 if start < body.len() => body[start] ^= 1 << self.below(8),
            _ => {
                let other = self.pick(seeds).clone();
                let from = self.below(other.len());
                let to = (from + self.below(64)).min(other.len());
                body.splice(start..end, other[from..to].iter().copied());
            }
        }
    }

    /// Puts, takes or swaps a value somewhere in the tree.
    fn rearrange(&mut self, tree: &mut Value, donor: &Value) {
        let value = match self.below(4) {
            0 => self.somewhere(donor).clone(),
            1 => self.somewhere(tree).clone(),
            _ => self.edge_value(),
        };
        let steps = self.below(7);
        self.put(tree, steps, value);
    }

    /// Goes `steps` into the tree, and does something with the value there.
    fn put(&mut self, at: &mut Value, steps: usize, value: Value) {
        let inside: Vec<&mut Value> = match at {
            Value::Object(members) if steps > 0 => members.values_mut().collect(),
            Value::Array(elements) if steps > 0 => elements.iter_mut().collect(),
            _ => Vec::new(),
        };
        let chosen = self.below(inside.len());
        if let Some(next) = inside.into_iter().nth(chosen) {
            return self.put(next, steps - 1, value);
        }
        match (self.below(4), at) {
            (0, Value::Object(members)) => {
                let key = members.keys().nth(self.below(members.len())).cloned().unwrap_or_default();
                members.remove(&key);
            }
            (0, Value::Array(elements)) => drop(elements.pop()),
            (1, Value::Object(members)) => {
                let key = format!("x{}", self.below(3));
                members.insert(key, value);
            }
            (1, Value::Array(elements)) => elements.push(value),
            (_, at) => *at = value,
        }
    }

    fn somewhere<'v>(&mut self, tree: &'v Value) -> &'v Value {
        let mut at = tree;
        for _ in 0..self.below(6) {
            let inside: Vec<&Value> = match at {
                Value::Object(members) => members.values().collect(),
                Value::Array(elements) => elements.iter().collect(),
                _ => break,
            };
            let Some(next) = inside.get(self.below(inside.len())) else { break };
            at = next;
        }
        at
    }

    fn edge_value(&mut self) -> Value {
        let values = [
            json!(null),
            json!({}),
            json!([]),
            json!(""),
            json!(0),
            json!(-1),
            json!(u64::MAX),
            json!(i64::MIN),
            json!(0.1),
            json!(1e300),
            json!(true),
            json!("\u{0}\n\u{1f6aa}"),
            json!({"name": null}),
            json!([null, [{}]]),
            json!("AAAA".repeat(100)),
            json!({"": {"": {"": 1}}}),
        ];
        self.pick(&values).clone()
    }
}

//! The modes of a template, and their conditions.

/// Modes, as bits: the n-th is the n-th of [`Modes::all`].
pub(super) type Set = u128;

/// One of the choices of an [`Axis`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// Template expression that is true when this choice is made.
    pub chosen: String,
    /// Template expression that is true when another choice is made.
    pub not_chosen: String,
}

/// A setting with several choices, of which values of the chart choose one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Axis(pub Vec<Choice>);

impl Axis {
    /// An axis of two choices: this value is set, or not.
    pub fn switch(value: &str) -> Self {
        let (on, off) = (value.to_owned(), format!("not {value}"));
        Self(vec![Choice { chosen: on.clone(), not_chosen: off.clone() }, Choice { chosen: off, not_chosen: on }])
    }

    /// An axis with one choice for each of these values of the chart value `value`.
    pub fn word(value: &str, words: &[&str]) -> Self {
        let choice =
            |word: &&str| Choice { chosen: format!("eq {value} {word:?}"), not_chosen: format!("ne {value} {word:?}") };
        Self(words.iter().map(choice).collect())
    }
}

/// One mode: for each axis, the index of its choice.
pub type Mode = Vec<usize>;

/// All combinations of the choices of some axes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Modes {
    axes: Vec<Axis>,
}

impl Modes {
    /// The combinations of these axes, at most 128.
    ///
    /// # Errors
    /// With their number when there are more.
    pub fn of(axes: Vec<Axis>) -> Result<Self, usize> {
        let modes = Self { axes };
        if modes.count() <= Set::BITS as usize { Ok(modes) } else { Err(modes.count()) }
    }

    /// All modes.
    pub fn all(&self) -> Vec<Mode> {
        (0..self.count()).map(|index| self.mode(index)).collect()
    }

    fn count(&self) -> usize {
        self.axes.iter().map(|axis| axis.0.len()).product()
    }

    fn mode(&self, mut index: usize) -> Mode {
        let choose = |axis: &Axis| {
            let choice = index % axis.0.len();
            index /= axis.0.len();
            choice
        };
        self.axes.iter().map(choose).collect()
    }

    pub(super) fn every(&self) -> Set {
        self.select(|_| true)
    }

    fn select(&self, of: impl Fn(&Mode) -> bool) -> Set {
        let modes = (0..self.count()).filter(|index| of(&self.mode(*index)));
        modes.fold(0, |set, index| set | 1 << index)
    }

    /// An expression that is true in the modes of `set`, where it is known that the mode is one of `known`: as few
    /// conjunctions as are found by taking the widest one first.
    pub(super) fn condition(&self, set: Set, known: Set) -> String {
        let conjunctions: Vec<Conjunction> = self.conjunctions();
        let mut terms = Vec::new();
        let mut rest = set & known;
        while rest != 0 {
            let inside = conjunctions.iter().filter(|conjunction| conjunction.modes & known & !set == 0);
            // Of those that cover as much, the one with the fewest words. There is always one: a mode by itself.
            let widest = inside.max_by_key(|conjunction| {
                ((conjunction.modes & rest).count_ones(), usize::MAX - conjunction.literals.len())
            });
            let Some(widest) = widest else { break };
            rest &= !widest.modes;
            terms.push(joined("and", &widest.literals));
        }
        joined("or", &terms)
    }

    /// Every conjunction of at most one literal of each axis.
    fn conjunctions(&self) -> Vec<Conjunction> {
        let mut found = vec![Conjunction { modes: self.every(), literals: Vec::new() }];
        for (number, axis) in self.axes.iter().enumerate() {
            let mut literals = Vec::new();
            for (option, choice) in axis.0.iter().enumerate() {
                let chosen = self.select(|mode| mode[number] == option);
                literals.push((chosen, &choice.chosen));
                if axis.0.len() > 2 {
                    literals.push((!chosen, &choice.not_chosen));
                }
            }
            let with = |conjunction: &Conjunction, (modes, literal): &(Set, &String)| Conjunction {
                modes: conjunction.modes & modes,
                literals: [&conjunction.literals[..], &[(*literal).clone()]].concat(),
            };
            let more: Vec<_> =
                found.iter().flat_map(|found| literals.iter().map(|literal| with(found, literal))).collect();
            found.extend(more);
        }
        found
    }
}

/// Literals that are all true in some modes.
struct Conjunction {
    modes: Set,
    literals: Vec<String>,
}

/// A call of `and` or `or`, in Go's prefix notation, unless there is one alone.
fn joined(operator: &str, terms: &[String]) -> String {
    let argument = |term: &String| if term.contains(' ') { format!("({term})") } else { term.clone() };
    match terms {
        [] => "true".to_owned(),
        [term] => term.clone(),
        terms => format!("{operator} {}", terms.iter().map(argument).collect::<Vec<_>>().join(" ")),
    }
}

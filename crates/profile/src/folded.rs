//! A profile as text: folded stacks, which other tools read too, after a line of facts.
//! In: stacks with counts, or the text. Out: the text, or the stacks.
//! Invariant: a line of facts ends with a dot, so that readers of folded stacks skip it.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

/// Ends the name of a function of the kernel.
pub const KERNEL: &str = "_[k]";
/// Ends the name of an inlined function.
pub const INLINED: &str = "_[i]";
/// Begins the line of facts.
const FACTS: &str = "# tidegate-profile";

/// Facts about a profile, in addition to its stacks.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Facts {
    /// How long it took.
    pub seconds: f64,
    /// Samples for each second of CPU time.
    pub hertz: u32,
    /// Threads that were sampled.
    pub workers: u32,
    /// Requests that these threads received in this time.
    pub requests: u64,
    /// CPU time of these threads in the program and in the kernel, as the kernel accounts it, in milliseconds.
    pub user_ms: u64,
    /// See `user_ms`.
    pub kernel_ms: u64,
    /// Samples that were lost.
    pub lost: u64,
    /// The source of the samples: `perf` or `timers`.
    pub means: String,
    /// The name of the only route whose requests were sampled; empty: all were.
    pub route: String,
    /// With a route: the samples in which the threads did something else.
    pub left_out: u64,
}

/// Stacks and how many samples each has.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Profile {
    /// Further facts about the profile.
    pub facts: Facts,
    /// Names of functions from the outermost to the innermost, separated by `;`.
    stacks: BTreeMap<String, u64>,
}

impl Profile {
    /// Counts samples of a stack.
    pub fn add(&mut self, stack: String, count: u64) {
        *self.stacks.entry(stack).or_default() += count;
    }

    /// The stacks, in the order of their texts.
    pub fn stacks(&self) -> impl Iterator<Item = (&str, u64)> {
        self.stacks.iter().map(|(stack, count)| (stack.as_str(), *count))
    }

    /// The number of samples.
    #[must_use]
    pub fn samples(&self) -> u64 {
        self.stacks.values().sum()
    }

    /// The number of samples in the kernel.
    #[must_use]
    pub fn kernel_samples(&self) -> u64 {
        let in_kernel = self.stacks.iter().filter(|(stack, _)| stack.ends_with(KERNEL));
        in_kernel.map(|(_, count)| count).sum()
    }

    /// Microseconds of CPU time of a sample for each request; `None` without requests.
    #[must_use]
    pub fn micros_per_request(&self) -> Option<f64> {
        let Facts { hertz, requests, .. } = self.facts;
        (hertz > 0 && requests > 0).then(|| 1e6 / f64::from(hertz) / requests as f64)
    }

    /// Reads a profile. Lines that are not stacks are skipped.
    ///
    /// # Errors
    /// The text contains no stack.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut profile = Self::default();
        for line in text.lines() {
            if let Some(facts) = line.strip_prefix(FACTS) {
                profile.facts = Facts::parse(facts);
            } else if let Some((stack, count)) = line.rsplit_once(' ')
                && let Ok(count) = count.parse()
                && !stack.starts_with('#')
            {
                profile.add(stack.to_owned(), count);
            }
        }
        match profile.stacks.is_empty() {
            true => Err("it contains no folded stack, such as `serve;read;recv 12`".to_owned()),
            false => Ok(profile),
        }
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{FACTS} {} .", self.facts)?;
        self.stacks.iter().try_for_each(|(stack, count)| writeln!(f, "{stack} {count}"))
    }
}

impl Facts {
    fn parse(text: &str) -> Self {
        let mut facts = Self::default();
        for (name, value) in text.split(' ').filter_map(|part| part.split_once('=')) {
            let number = || value.parse().unwrap_or(0);
            match name {
                "seconds" => facts.seconds = value.parse().unwrap_or(0.0),
                "hertz" => facts.hertz = value.parse().unwrap_or(0),
                "workers" => facts.workers = value.parse().unwrap_or(0),
                "requests" => facts.requests = number(),
                "user-ms" => facts.user_ms = number(),
                "kernel-ms" => facts.kernel_ms = number(),
                "lost" => facts.lost = number(),
                "means" => value.clone_into(&mut facts.means),
                "route" => facts.route = value.replace("%20", " ").replace("%25", "%"),
                "left-out" => facts.left_out = number(),
                // A newer version may state more.
                _ => {}
            }
        }
        facts
    }

    /// The facts in words.
    #[must_use]
    pub fn words(&self) -> String {
        let mut text = format!(
            "{} worker{}, {:.1} s",
            self.workers,
            if self.workers == 1 { "" } else { "s" },
            self.seconds
        );
        if self.hertz > 0 {
            // Writing to a String cannot fail.
            let _ = write!(text, ", {} Hz by {}", self.hertz, self.means);
        }
        if self.requests > 0 {
            let _ = write!(text, ", {} requests", self.requests);
        }
        if !self.route.is_empty() {
            let _ = write!(text, ", route {}", self.route);
        }
        if self.lost > 0 {
            let _ = write!(text, ", {} samples lost", self.lost);
        }
        text
    }
}

impl fmt::Display for Facts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seconds, hertz, workers, requests, user_ms, kernel_ms, lost, .. } = self;
        let Self { means, route, left_out, .. } = self;
        write!(
            f,
            "seconds={seconds:.2} hertz={hertz} workers={workers} requests={requests} user-ms={user_ms} \
             kernel-ms={kernel_ms} lost={lost} means={means}"
        )?;
        if !route.is_empty() {
            // A blank separates the facts.
            let route = route.replace('%', "%25").replace(' ', "%20");
            write!(f, " route={route} left-out={left_out}")?;
        }
        Ok(())
    }
}

/// The name without the mark of its kind, and whether the function belongs to the kernel.
#[must_use]
pub fn bare(frame: &str) -> (&str, bool) {
    match frame.strip_suffix(KERNEL) {
        Some(name) => (name, true),
        None => (frame.strip_suffix(INLINED).unwrap_or(frame), false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_read_as_it_was_written() {
        let facts = Facts {
            seconds: 10.25,
            hertz: 99,
            workers: 2,
            requests: 1234,
            user_ms: 500,
            kernel_ms: 300,
            lost: 1,
            means: "perf".to_owned(),
            route: "a.example/100% b/*#2".to_owned(),
            left_out: 9,
        };
        let mut profile = Profile { facts, ..Profile::default() };
        profile.add("serve;turn;<T as X>::f;inner_[i]".to_owned(), 7);
        profile.add("serve;recv;tcp_recvmsg_[k]".to_owned(), 3);
        profile.add("serve;recv;tcp_recvmsg_[k]".to_owned(), 2);
        let text = profile.to_string();
        assert_eq!(Profile::parse(&text).as_ref(), Ok(&profile));
        assert_eq!((profile.samples(), profile.kernel_samples()), (12, 5));
        let first = text.lines().next().expect("a line");
        assert!(first.ends_with(" ."), "other readers skip it: {first}");
        assert!(Profile::parse("").is_err() && Profile::parse("# x 7\nword\n").is_err());
    }

    #[test]
    fn stacks_of_other_tools_are_read() {
        let profile = Profile::parse("main;a b;c 3\nmain 1\n").expect("stacks");
        assert_eq!(profile.stacks().collect::<Vec<_>>(), [("main", 1), ("main;a b;c", 3)]);
        assert_eq!(profile.micros_per_request(), None);
    }
}

//! One line of raw values per second, in the columns of h1load's `-ll`, for scripts and plots. The columns that
//! h1load does not have follow after its last one: the host's packets, bytes and network soft interrupts.
//! In: ticks of a run. Out: lines. Times are seconds since 1970; latencies are means over the second.

use crate::drive::Tick;
use crate::machine::NetworkUse;
use core::fmt::Write as _;

/// Writes the lines of one run. Its counts are the sums since the start.
#[derive(Debug, Default)]
pub struct Lines {
    connects: u64,
    requests: u64,
    bytes: u64,
    errors: u64,
    /// The host's traffic at the end of the last second; `None` before the first.
    network: Option<NetworkUse>,
}

impl Lines {
    /// The names of the columns.
    #[must_use]
    pub fn header() -> &'static str {
        "#_____time conns tot_conn  tot_req      tot_bytes    err thr cps rps Bps bps ttfb(us) ttlb(us) \
         1xx 2xx 3xx 4xx 5xx pktin/s pktout/s netin(Bps) netout(Bps) softirq/s"
    }

    /// The line of the second that `tick` ends; `None` within a second. `throttle_percent` is 100 after the
    /// ramp; `network` is the host's traffic now.
    pub fn line(
        &mut self,
        tick: &Tick<'_>,
        unix_seconds: u64,
        throttle_percent: u32,
        network: NetworkUse,
    ) -> Option<String> {
        let (second, over) = tick.second?;
        self.connects += second.connects;
        self.requests += second.requests;
        self.bytes += second.bytes;
        self.errors += second.errors;
        let seconds = over.as_secs_f64().max(1e-3);
        let per_second = |count: u64| count as f64 / seconds;
        let mut line = format!(
            "{unix_seconds} {} {} {} {} {} {throttle_percent} {:.0} {:.0} {:.0} {:.0} ",
            second.connections,
            self.connects,
            self.requests,
            self.bytes,
            self.errors,
            per_second(second.connects),
            per_second(second.requests),
            per_second(second.bytes),
            per_second(second.bytes) * 8.0,
        );
        // Writing to a String cannot fail.
        let _ = if second.requests == 0 {
            write!(line, "- -")
        } else {
            let first_byte = second.first_byte_sum.as_secs_f64() * 1e6 / second.requests as f64;
            write!(line, "{first_byte:.1} {:.1}", second.latency.mean_us())
        };
        for count in &second.statuses[1..] {
            let _ = write!(line, " {count}");
        }
        match self.network.replace(network) {
            // In the first second there is no earlier value to subtract.
            None => line.push_str(" - - - - -"),
            Some(before) => {
                let moved = network.since(before);
                for count in [
                    moved.packets_in,
                    moved.packets_out,
                    moved.bytes_in,
                    moved.bytes_out,
                    moved.soft_interrupts,
                ] {
                    let _ = write!(line, " {:.0}", per_second(count));
                }
            }
        }
        Some(line)
    }
}

//! The HTTP server's own families.

use std::collections::BTreeMap;

use super::{Exposition, Label};
use crate::engine::stats::Histogram;

const HIGH_RESOLUTION: &[f64] = &[
    0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0,
    7.5, 10.0, 30.0, 60.0,
];
const LOW_RESOLUTION: &[f64] = &[0.1, 0.5, 1.0];

/// Counts by handler, method and status class. Handlers and methods are fixed words, so that the
/// label set cannot grow with what clients send.
#[derive(Debug)]
pub struct HttpStats {
    requests: BTreeMap<(&'static str, &'static str, &'static str), u64>,
    handlers: BTreeMap<&'static str, Sizes>,
    durations: BTreeMap<(&'static str, &'static str), Histogram>,
    high_resolution: Histogram,
}

#[derive(Debug, Default)]
struct Sizes {
    count: u64,
    request_bytes: f64,
    response_bytes: f64,
}

/// One answered request.
#[derive(Debug, Clone, Copy)]
pub struct Answered {
    /// Route, or `none`.
    pub handler: &'static str,
    /// Method.
    pub method: &'static str,
    /// HTTP status.
    pub status: u16,
    /// Length of the request's body.
    pub request_bytes: usize,
    /// Length of the answer's body, 0 for a stream.
    pub response_bytes: usize,
    /// Seconds from head to end.
    pub seconds: f64,
}

impl Default for HttpStats {
    fn default() -> Self {
        Self {
            requests: BTreeMap::new(),
            handlers: BTreeMap::new(),
            durations: BTreeMap::new(),
            high_resolution: Histogram::new(HIGH_RESOLUTION),
        }
    }
}

impl HttpStats {
    /// Counts one request.
    pub fn note(&mut self, answered: Answered) {
        let class = match answered.status {
            200..=299 => "2xx",
            300..=399 => "3xx",
            400..=499 => "4xx",
            _ => "5xx",
        };
        *self.requests.entry((answered.handler, answered.method, class)).or_default() += 1;
        let sizes = self.handlers.entry(answered.handler).or_default();
        sizes.count += 1;
        sizes.request_bytes += answered.request_bytes as f64;
        sizes.response_bytes += answered.response_bytes as f64;
        self.durations
            .entry((answered.handler, answered.method))
            .or_insert_with(|| Histogram::new(LOW_RESOLUTION))
            .observe(answered.seconds);
        self.high_resolution.observe(answered.seconds);
    }

    /// Prints the families.
    pub fn write(&self, out: &mut Exposition) {
        let labels: Vec<_> = self
            .requests
            .keys()
            .map(|(handler, method, status)| {
                [("handler", *handler), ("method", *method), ("status", *status)]
            })
            .collect();
        let series: Vec<(&[Label<'_>], f64)> = labels
            .iter()
            .zip(self.requests.values())
            .map(|(l, n)| (l.as_slice(), *n as f64))
            .collect();
        out.counter(
            "http_requests",
            "Total number of requests by method, status and handler.",
            &series,
        );

        let labels: Vec<_> = self.handlers.keys().map(|handler| [("handler", *handler)]).collect();
        let sized = |size: fn(&Sizes) -> f64| -> Vec<(&[Label<'_>], u64, f64)> {
            labels
                .iter()
                .zip(self.handlers.values())
                .map(|(l, s)| (l.as_slice(), s.count, size(s)))
                .collect()
        };
        out.summary(
            "http_request_size_bytes",
            "Content length of incoming requests by handler. Only value of header is respected. Otherwise ignored. No \
             percentile calculated. ",
            &sized(|sizes| sizes.request_bytes),
        );
        out.summary(
            "http_response_size_bytes",
            "Content length of outgoing responses by handler. Only value of header is respected. Otherwise ignored. \
             No percentile calculated. ",
            &sized(|sizes| sizes.response_bytes),
        );
        out.histogram(
            "http_request_duration_highr_seconds",
            "Latency with many buckets but no API specific labels. Made for more accurate percentile calculations. ",
            &[(&[], &self.high_resolution)],
        );
        let labels: Vec<_> = self
            .durations
            .keys()
            .map(|(handler, method)| [("handler", *handler), ("method", *method)])
            .collect();
        let series: Vec<(&[Label<'_>], &Histogram)> =
            labels.iter().zip(self.durations.values()).map(|(l, h)| (l.as_slice(), h)).collect();
        out.histogram(
            "http_request_duration_seconds",
            "Latency with only few buckets by handler. Made to be only used if aggregation by handler is important. ",
            &series,
        );
    }
}

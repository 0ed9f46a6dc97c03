//! Milepost over HTTP.

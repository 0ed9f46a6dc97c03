//! Why a step ran, was reused, or waits.

mod nearest;

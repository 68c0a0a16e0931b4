//! Integration tests; everything is in the test targets.

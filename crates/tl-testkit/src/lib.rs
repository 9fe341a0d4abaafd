//! Fake model, fault proxy and baselines for tests

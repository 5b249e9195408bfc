//! Tests of operators that run inside of somebody else's process. There is nothing but tests.

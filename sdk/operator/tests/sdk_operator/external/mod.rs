//! Provided certificates: what is checked, logged and served. The API server calls
//! all the while.

mod damage;
pub(crate) mod fixture;
pub(crate) mod load;
mod operator;
mod published;
mod replacement;

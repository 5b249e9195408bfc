//! Certificates that somebody else makes: what is checked, what is told, what goes on being served. The API server calls
//! all the while.

mod damage;
pub(crate) mod fixture;
pub(crate) mod load;
mod operator;
mod published;
mod replacement;

pub mod entity;
pub mod generate;
pub mod nasty;

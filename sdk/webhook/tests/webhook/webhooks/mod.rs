//! Webhooks as their authors use them: in process, and called by a real API server through generated configurations.

mod admission;
mod decisions;
mod deletion;
mod fleet;
mod gate;
mod issues;
mod kinds;
mod nasty;
mod outages;
mod settings;
mod subresources;
mod validators;
mod versions;

//! The webhooks on the SDK, with another allocator: which one is the binary's choice.

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> anyhow::Result<()> {
    portcullis_benches::webhook::serve::main(portcullis_benches::webhook::serve::portcullis)
}

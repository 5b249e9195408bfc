//! The webhooks on the SDK, with the allocator of the platform.

fn main() -> anyhow::Result<()> {
    portcullis_benches::webhook::serve::main(portcullis_benches::webhook::serve::portcullis)
}

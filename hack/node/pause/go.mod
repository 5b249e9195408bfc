// The sandbox image's program. `make node-up` builds it.
module portcullis.example/hack/node/pause

go 1.26.0

module portcullis.example/benches/peers/reverse-proxy

go 1.26.0

module github.com/jwx-go/jwkfetch/v4

go 1.27.0

require (
	github.com/lestrrat-go/httprc/v3 v3.0.6
	github.com/lestrrat-go/jwx/v4 v4.2.0
)

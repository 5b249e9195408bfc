module github.com/stacklok/toolhive-core/redisconn

go 1.27.0

require github.com/redis/go-redis/v9 v9.23.0

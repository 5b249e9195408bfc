-- KEYS: buckets. ARGV: their number, then all capacities, all rates (tokens in a second), all times to live (s).
-- Takes a token from each bucket and returns 0. Where one has none, takes from none of them and returns the position of the first such one.
local count = tonumber(ARGV[1])
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local tokens, short = {}, 0
for i = 1, count do
  local capacity, rate = tonumber(ARGV[1 + i]), tonumber(ARGV[1 + count + i])
  local kept = redis.call('HMGET', KEYS[i], 'tokens', 'last_refill')
  local before, at = tonumber(kept[1] or ''), tonumber(kept[2] or '')
  tokens[i] = capacity
  if before and at then
    tokens[i] = math.min(capacity, before + math.max(0, now - at) * rate / 1000000)
  end
  if short == 0 and tokens[i] < 1 then
    short = i
  end
end
for i = 1, count do
  local left = short == 0 and tokens[i] - 1 or tokens[i]
  redis.call('HSET', KEYS[i], 'tokens', string.format('%.17g', left), 'last_refill', string.format('%.0f', now))
  redis.call('EXPIRE', KEYS[i], ARGV[1 + 2 * count + i])
end
return short

-- KEYS: session. ARGV: name of the binding, the caller's binding, time to live (ms).
-- Renews a session and returns its record, where it is the caller's.
local value = redis.call('GET', KEYS[1])
if not value then
  return false
end
local read, record = pcall(cjson.decode, value)
if not read or type(record) ~= 'table' or type(record.metadata) ~= 'table' or record.metadata[ARGV[1]] ~= ARGV[2] then
  return false
end
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return value

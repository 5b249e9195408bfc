-- KEYS: session. ARGV: name of the binding, the caller's binding.
-- Removes a session and returns 1, where it is the caller's.
local value = redis.call('GET', KEYS[1])
if not value then
  return 0
end
local read, record = pcall(cjson.decode, value)
if not read or type(record) ~= 'table' or type(record.metadata) ~= 'table' or record.metadata[ARGV[1]] ~= ARGV[2] then
  return 0
end
return redis.call('DEL', KEYS[1])

-- KEYS: session. ARGV: name of the binding, the caller's binding, record, time to live (ms).
-- Writes a record over one of the same caller, or over none, and returns 1; 0 where somebody else has the id.
local value = redis.call('GET', KEYS[1])
if value then
  local read, record = pcall(cjson.decode, value)
  if not read or type(record) ~= 'table' or type(record.metadata) ~= 'table' or record.metadata[ARGV[1]] ~= ARGV[2] then
    return 0
  end
end
redis.call('SET', KEYS[1], ARGV[3], 'PX', ARGV[4])
return 1

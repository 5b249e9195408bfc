-- KEYS: session. ARGV: name of the binding, the caller's binding, record, time to live (ms).
-- Writes a record over one of the same caller, or over none, and returns 1; 0 where somebody else has the id.
local value, record = find(KEYS[1], ARGV[1], ARGV[2])
if value and not record then
  return 0
end
redis.call('SET', KEYS[1], ARGV[3], 'PX', ARGV[4])
return 1

-- KEYS: session. ARGV: name of the binding, the caller's binding, time to live (ms).
-- Renews a session and returns its record, where it is the caller's.
local value, record = find(KEYS[1], ARGV[1], ARGV[2])
if not record then
  return false
end
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return value

-- KEYS: session. ARGV: name of the binding, the caller's binding.
-- Removes a session and returns 1, where it is the caller's.
local _, record = find(KEYS[1], ARGV[1], ARGV[2])
if not record then
  return 0
end
return redis.call('DEL', KEYS[1])

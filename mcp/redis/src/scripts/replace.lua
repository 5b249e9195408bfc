-- KEYS: session. ARGV: name of the binding, the caller's binding, record, time to live (ms), the server's id for the session and the server's URL as
-- the caller knows them, empty where it knows none.
-- Writes the record and returns it, where the session is the caller's and at that id and URL still. Returns the stored record where it has moved on.
local value, record = find(KEYS[1], ARGV[1], ARGV[2])
if not record then
  return false
end
local same_id = (record.metadata.backend_sid or '') == ARGV[5]
local same_url = ARGV[6] == '' or record.metadata.backend_url == ARGV[6]
if same_id and same_url then
  value = ARGV[3]
  redis.call('SET', KEYS[1], value, 'PX', ARGV[4])
end
return value

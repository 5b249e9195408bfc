-- Returns what is stored under a session's key, and its record where the binding is the caller's.
local function find(session, binding, caller)
  local value = redis.call('GET', session)
  local read, record = pcall(cjson.decode, value or '')
  if read and type(record) == 'table' and type(record.metadata) == 'table' and record.metadata[binding] == caller then
    return value, record
  end
  return value, nil
end

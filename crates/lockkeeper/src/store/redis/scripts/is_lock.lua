-- Whether a string that a break is going to delete is certain to be a lock: ours, or the random value of another client. Such
-- a value is that of a UUID; or it has an end and looks like at least ninety random bits, or is the twenty random bytes that
-- Redis's documents recommend, which are hardly ever text in UTF-8.
local function is_lock(value, left)
  if string.find(value, '^%S+ %d+ %d+ %d+ ') then return true end
  local length = #value
  if (length == 32 or length == 36) and string.find(value, '^[%x%-]+$') then return true end
  if left < 0 then return false end
  if length == 20 then
    local rest = string.gsub(value, '[\194-\244][\128-\191]+', '')
    if string.find(rest, '[\128-\255]') then return true end
  end
  return length >= 16 and length <= 128 and string.find(value, '^[%w+/=_:.%-]+$') ~= nil
end

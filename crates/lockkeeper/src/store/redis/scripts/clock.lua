-- The server's time: one for the whole script, as seconds and microseconds, both text.
local time = redis.call('TIME')

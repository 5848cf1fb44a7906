-- How far behind this node's clock a token may be, in us: as `Terms::lag` says.
local LAG = 1800000000

if not modes[claim] then return 0 end
finish(claim)
return held

-- The leases and the fence of a name, in one go.
-- ?1 name.

SELECT claim,token,process,mode,permits,taken,tokens,expires,since,waited,lease,label FROM lock WHERE name=?1

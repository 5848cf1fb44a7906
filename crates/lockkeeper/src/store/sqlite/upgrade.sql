-- Brings the tables of version 1 to version 2. Run while nobody else has the file open, in the transaction that also
-- marks it with its new version. The caller then gives each lease its length.
--
-- A claim that waits belongs to a program that has the file open, so none is left. A lease may outlive its program: the
-- guardian of `lockkeeper run` keeps it alive without the file.

DELETE FROM waiter;
ALTER TABLE waiter ADD COLUMN since INTEGER NOT NULL DEFAULT 0;
ALTER TABLE waiter ADD COLUMN label TEXT;
ALTER TABLE lock ADD COLUMN lease INTEGER;
ALTER TABLE lock ADD COLUMN label TEXT;

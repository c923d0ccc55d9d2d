-- The tests chosen for a client were a list of names; they become an object, so that each may have an interval:
-- ["ping","route"] is now {"ping":true,"route":true}. Names have no quotes, brackets or commas.

UPDATE clients SET tests = REPLACE(REPLACE(REPLACE(REPLACE(
    tests, '[]', '{}'), '["', '{"'), '","', '":true,"'), '"]', '":true}')
WHERE tests IS NOT NULL;

mod following;
mod formats;

/**
 * Network advice from an Enable server.
 *
 * <p>An Enable server runs beside a data server and knows the paths to its clients. {@link org.longhaul.enable.EnableClient}
 * asks it about the path between that server and this host.
 */
package org.longhaul.enable;
